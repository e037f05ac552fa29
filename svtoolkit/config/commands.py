"""Settings of the commands that have no other place."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.compression import DistillationConfig
from svtoolkit.config.losses import LossConfig
from svtoolkit.config.memory import MemoryStrategyConfig
from svtoolkit.config.networks import ModelConfig, ResNetConfig
from svtoolkit.config.optimizers import OptimConfig, SGDConfig
from svtoolkit.config.scoring import FRONT_END
from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class AverageConfig:
    """`svt average`: mean of the weights of several epochs as a released model (model.safetensors + model.yaml)."""

    exp_dir: str = setting(REQUIRED, "run of svt train")
    num: int = setting(10, "epochs averaged; where fewer are kept, all of them")
    choose: str = setting(
        "last",
        "last epochs, best by validation EER, or ema: the moving average of the newest state in place of epochs "
        "(trainer.ema)",
    )
    out: str | None = setting(None, "folder of the released model; null: <exp_dir>/model")


@dataclass
class EnsembleConfig:
    """`svt ensemble`: several released models as one, whose cosines are the means of theirs."""

    models: list[str] = setting(REQUIRED, "released models of the same features, ours or others', or hf://org/name")
    out: str = setting(REQUIRED, "folder to make, of a released model")
    front_end: str | None = setting(None, FRONT_END)


@dataclass
class ConvertModelConfig:
    """`svt convert-model`: a released model of another toolkit as ours, or one of ours as WeSpeaker's."""

    model: str = setting(
        REQUIRED, "released model, ours or another toolkit's, or hf://org/name (docs/released_models.md)"
    )
    out: str = setting(REQUIRED, "folder to make")
    format: str = setting(
        "svtoolkit", "svtoolkit (model.safetensors + model.yaml) or wespeaker (avg_model.pt + config.yaml)"
    )
    front_end: str | None = setting(None, FRONT_END)


@dataclass
class ReverseConfig:
    """`svt reverse`: a trained ResNet as a reversible network of the same weights, to be fine-tuned in less memory."""

    model: str = setting(REQUIRED, "released ResNet, ours or another toolkit's, or hf://org/name")
    out: str = setting(REQUIRED, "folder to make, of a released model")
    remainder_bits: int = setting(
        4, "bits a value and block that are kept, 0, 1, 2, 4 or 8: the more, the nearer to the ResNet it is made of"
    )
    frames: int = setting(200, "frames of a crop, for the memory that is printed")
    front_end: str | None = setting(None, FRONT_END)


@dataclass
class PublishConfig:
    """`svt publish`: a released model of ours as a repository of the Hugging Face Hub, with a card, in one commit."""

    model: str = setting(REQUIRED, "released model of ours, as svt average or svt convert-model write it")
    repo: str = setting(REQUIRED, "org/name of the repository, which is made where there is none")
    results: list[str] = setting([], "files of svt evaluate of this model, whose error rates the card shows")
    license: str | None = setting(None, "as the hub writes it: apache-2.0, cc-by-4.0, ...; null: none is stated")
    card: str | None = setting(None, "file that becomes README.md as it is; null: the card is written")
    out: str | None = setting(None, "folder to make of what would be published, to look at; nothing is uploaded then")
    private: bool | None = setting(
        None, "true: only those whom its owner lets may read it; false: all; null: as it is, or as the hub makes it"
    )
    revision: str | None = setting(None, "branch that gets the commit, made from the main one; null: the main branch")
    message: str | None = setting(None, "message of the commit; null: what the network is")


@dataclass
class MemoryPredictionConfig:
    """`svt memory`: what a training step needs, by what it is for; predicted on fake tensors in a few seconds."""

    frames: int = setting(200, "frames of a crop, 10 ms each")
    batch_size: int = setting(64, "crops in memory at once on a device: trainer.micro_batch, or its share of the batch")
    devices: int = setting(1, "that train together; the memory is that of one. loss.shard=true: they share the classes")
    precision: str = setting("fp32", "fp32, bf16 (autocast) or fp16 (autocast with loss scaling)")
    num_classes: int = setting(17982, "training speakers x speeds x warps: 3 x 5994 of VoxCeleb2")
    num_bins: int = setting(80, "bins of the filter bank")
    channels_last: bool = setting(True, "memory layout of the convolutions")
    ema: bool = setting(False, "true: a moving average of the weights is kept, as with trainer.ema")
    budget_gib: float = setting(11.0, "GiB for the largest batch; nothing is held back for context and workspace")
    device: str = setting(
        "auto",
        "auto or cpu: predicted on fake tensors; cuda: the step is run there, and the allocator's peak shown too",
    )
    format: str = setting("table", "table or json, on standard output")
    model: ModelConfig = setting(ResNetConfig, "the network")
    memory: MemoryStrategyConfig = setting(MemoryStrategyConfig, "what becomes of activations")
    loss: LossConfig = setting(LossConfig, "the head over the training speakers")
    optim: OptimConfig = setting(SGDConfig, "the optimizer")
    distillation: DistillationConfig = setting(DistillationConfig, "what is learnt from a larger network")


@dataclass
class PlanConfig:
    """`svt plan`: all ways to train a network on a card that fit, the quickest first; no GPU is needed."""

    gpu: str | None = setting(
        None, "card: 2080ti, 3060, 3090, 4090, a100, h100, h200, 3050_laptop (4 GB), gtx750 (1 GB); null: the one here"
    )
    gib: float | None = setting(None, "GiB of memory that a process sees there; null: those of the card")
    gpus: int = setting(1, "cards that train together; they share the effective batch")
    effective_batch: int = setting(256, "crops of a step on all cards: trainer.batch_size")
    frames: int = setting(200, "frames of a crop, 10 ms each: data.crop_frames")
    num_classes: int = setting(17982, "training speakers x speeds x warps: 3 x 5994 of VoxCeleb2")
    num_bins: int = setting(80, "bins of the filter bank")
    optims: list[str] = setting(["sgd", "sgd_8bit", "adamw", "adamw_8bit"], "optimizers to choose from")
    ema: bool = setting(False, "true: a moving average of the weights is kept, as with trainer.ema")
    top: int = setting(12, "ways that are shown; 0: all")
    format: str = setting("table", "table or json, on standard output")
    model: ModelConfig = setting(ResNetConfig, "the network; all: what of every network fits, from stored figures")
    loss: LossConfig = setting(LossConfig, "the head over the training speakers")
    distillation: DistillationConfig = setting(DistillationConfig, "what is learnt from a larger network")


@dataclass
class ReversibilityConfig:
    """`svt reversibility`: how well a reversible network, as initialised, finds its activations again (on the CPU)."""

    frames: int = setting(50, "frames of the input, normal noise, 10 ms each")
    batch_size: int = setting(2, "utterances of the input")
    num_bins: int = setting(80, "bins of the filter bank")
    precisions: list[str] = setting(
        ["fp64", "fp32", "bf16", "fp16"], "fp64, fp32, bf16 and fp16 (autocast), each without and with exact streams"
    )
    depths: list[int] = setting(
        [4, 8, 16, 32, 64], "units of chains that are inverted layer by layer, and with couplings around them"
    )
    slopes: list[float] = setting([0.05, 0.1, 0.3, 0.7], "of leaky ReLU in these chains")
    seed: int = setting(0, "of weights and input")
    format: str = setting("table", "table or json, on standard output")
    out: str | None = setting(None, "folder for reversibility.json and the figures, SVG and PNG; null: none is written")
    model: ModelConfig = setting(ResNetConfig, "the network")


@dataclass
class ModelsConfig:
    """`svt models`: every network that model=... can choose, with its size, its work and its memory."""

    names: list[str] = setting([], "networks, or patterns such as revnet*; none: all")
    frames: int = setting(200, "frames of an utterance, 10 ms each")
    num_bins: int = setting(80, "bins of the filter bank")
    format: str = setting("table", "table or json, on standard output")


@dataclass
class RecipeConfig:
    """`svt recipe`: a recipe as a folder of one's own."""

    name: str | None = setting(None, "recipe to copy; null: list them")
    out: str | None = setting(None, "folder to make; null: ./svtoolkit-NAME")


@dataclass
class CopyConfig:
    """`svt copy`: an experiment or a preset as a file of one's own."""

    name: str | None = setting(None, "experiment or option of a group, as experiment/mini, optim/sgd; null: list them")
    out: str | None = setting(None, "file to write, ending with .yaml; null: standard output")


@dataclass
class CompletionConfig:
    """`svt completion`: what completes words after svt when Tab is pressed."""

    shell: str = setting(REQUIRED, "bash, zsh or fish")
