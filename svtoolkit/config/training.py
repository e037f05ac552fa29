"""Settings of `svt train`: a dataclass for every group and for the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from svtoolkit.config.compression import CompressConfig, DistillationConfig
from svtoolkit.config.features import FeaturesConfig
from svtoolkit.config.losses import LossConfig, PairwiseConfig
from svtoolkit.config.memory import MemoryStrategyConfig
from svtoolkit.config.networks import ModelConfig, ResNetConfig
from svtoolkit.config.optimizers import OptimConfig, SGDConfig
from svtoolkit.config.setting import REQUIRED, setting

CROPS = "overlapping crops of an utterance whose unit embeddings are averaged; null: it is embedded whole"
CROP_SECONDS = "length of a crop; an utterance that is no longer is embedded whole"


@dataclass
class TrainDataConfig:
    """Training speech and how crops are cut from it."""

    train: str = setting(REQUIRED, "Kaldi data directory of the training speakers")
    root: str | None = setting(
        None, "base of relative paths, a folder (shards: or URL); null: the working directory (shards: that of data)"
    )
    source: str | None = setting(
        None,
        "files (wav.scp), shards (shards.scp) or features (feats.scp, of `svt features`); null: the first of them that "
        "is there",
    )
    cache_dir: str | None = setting(
        None, "local folder that shards at a URL are streamed into once; null: local shards"
    )
    cache_gib: float = setting(50.0, "GiB that cache_dir may hold; what was used longest ago is deleted first")
    shuffle_shards: int | None = setting(None, "shards shuffled together; null: all (a cache should hold them)")
    channel: int | None = setting(None, "channel of multi-channel files, counted from 0; null: such files are an error")
    resample: bool = setting(False, "true: convert files of another rate to features.sample_rate; false: an error")
    crop_frames: int = setting(
        200,
        "length of a training crop in frames (200 frames of 25/10 ms: 32240 samples); of 10 ms where the network takes "
        "the waveform",
    )
    speeds: list[float] = setting([1.0, 0.9, 1.1], "speed factors; every factor makes new classes of all speakers")
    warps: list[float] = setting(
        [1.0],
        "vocal tract warps (VTLP), such as [1.0, 0.9, 1.1]: every factor divides the frequencies of the filters and "
        "makes new classes of all speakers at all speeds; Kaldi's filter bank alone",
    )
    min_seconds: float = setting(0.5, "shorter utterances are left out, and counted in the log")
    num_workers: int | None = setting(
        None,
        "loader processes of a device, 0: load in the main process; null: as the cores allow, at most 8; the numbers "
        "do not depend on it",
    )
    max_bad: float = setting(
        0.001,
        "share of the utterances that may be silent, NaN, cut off or unreadable: they are left out and listed in "
        "exp_dir/bad_files.tsv; any above 0 allows one",
    )


@dataclass
class MarginScheduleConfig:
    """How the margin grows to loss.margin."""

    name: str = setting(
        "exponential",
        "shape of the ramp: exponential (WeSpeaker's: fast at first, within 0.1 % of loss.margin at its end), linear "
        "or constant (none); choose with margin_schedule=...",
    )
    initial: float = setting(0.0, "margin before the ramp; constant: must be 0")
    start: float = setting(19 / 150, "share of the run before the ramp (WeSpeaker: 19 of 150 epochs); constant: 0")
    end: float = setting(39 / 150, "share of the run at whose end it is over (WeSpeaker: 39 of 150); constant: 0")


@dataclass
class ScheduleConfig:
    """Learning rate over optimizer steps."""

    name: str = setting(
        "exponential",
        "shape of the curve: exponential (WeSpeaker's ExponentialDecrease), cosine (half of one) or one_cycle "
        "(cosine rise, cosine fall: Smith & Topin 2019); choose with schedule=...",
    )
    warmup: float = setting(
        0.04, "share of the run in which the rate rises, linearly (one_cycle: as a cosine); WeSpeaker: 6 of 150 epochs"
    )
    start_factor: float = setting(0.0, "factor of optim.lr at step 0 where there is a warm-up")
    end_factor: float = setting(5e-4, "factor of optim.lr at the last step")


@dataclass
class AugmentConfig:
    """Random changes of a training crop; every draw is a function of (seed, epoch, utterance)."""

    dither: float = setting(1.0, "standard deviation of white noise in 16-bit units; never applied outside training")
    spec_probability: float = setting(0.6, "share of crops that get SpecAug's masks")
    time_masks: int = setting(1, "masks along time")
    time_width: int = setting(10, "widest of them, frames (width drawn from 0 to this)")
    freq_masks: int = setting(1, "masks along frequency")
    freq_width: int = setting(8, "widest of them, bins")
    noise: str | None = setting(None, "directory of noise, music and speech (`svt prepare corpus=musan`); null: none")
    reverberation: str | None = setting(None, "data directory of RIRs (`svt prepare corpus=rirs_noises`); null: none")
    device: str = setting(
        "worker", "where noise and reverberation are made: worker (loader) or batch (training device)"
    )
    probability: float = setting(0.6, "share of crops that noise, reverberation, gain or telephone change at all")
    only_noise_weight: float = setting(1.0, "of those, in proportion: noise alone,")
    only_reverberation_weight: float = setting(1.0, "reverberation alone,")
    both_weight: float = setting(1.0, "both (WeSpeaker: 0)")
    noise_weight: float = setting(1.0, "what is mixed in, in proportion: noise,")
    music_weight: float = setting(1.0, "music,")
    babble_weight: float = setting(1.0, "several talkers")
    noise_snr: list[float] = setting([0.0, 15.0], "dB of speech over noise, drawn uniformly")
    music_snr: list[float] = setting([5.0, 15.0], "dB of speech over music")
    babble_snr: list[float] = setting([10.0, 30.0], "dB of speech over babble")
    babble_talkers: list[int] = setting([3, 7], "fewest and most (WeSpeaker: [1, 1])")
    gain: list[float] = setting([0.0, 0.0], "dB, lowest and highest, of crops that are changed")
    telephone_probability: float = setting(0.0, "share of changed crops on a telephone line (G.711, 300 to 3400 Hz)")
    added: dict[str, Any] = setting({}, "changes of other packages, by name: {clipping:{probability:0.3}}")


@dataclass
class ValidationConfig:
    """Training speakers held out of training and scored on fixed trials; never the evaluation set."""

    speakers: int | None = setting(
        None,
        "held-out speakers (drawn by the seed of those with two utterances); 0: no validation; null: max_speakers, "
        "or a fifth of all speakers where that is fewer",
    )
    max_speakers: int = setting(20, "most speakers that are held out where speakers is null")
    targets_per_speaker: int = setting(10, "most target trials of one speaker; as many non-target trials are drawn")
    every_epochs: int = setting(1, "epochs from one validation to the next")


@dataclass
class TrainerConfig:
    """The training loop."""

    epochs: int = setting(
        50, "every (utterance, speed, warp) once, in whole batches (50 at three speeds: WeSpeaker's 150)"
    )
    batch_size: int | None = setting(
        None,
        "EFFECTIVE batch: crops that one optimizer step sees; null: max_batch_size, or what makes two steps where an "
        "epoch has fewer crops",
    )
    max_batch_size: int = setting(256, "most crops that one optimizer step sees where batch_size is null")
    micro_batch: int | None = setting(
        None,
        "most crops in memory at once on a device; the rest of its share is accumulated; null: as many as the GPU is "
        "predicted to hold (CPU: all)",
    )
    precision: str = setting("fp32", "fp32, bf16 (autocast) or fp16 (autocast with loss scaling)")
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    devices: int = setting(1, "GPUs of this machine that share the batch (device=cpu: processes); torchrun: leave at 1")
    sync_batch_norm: bool = setting(False, "BatchNorm over the crops of all devices instead of one's own; CUDA")
    threads: int | None = setting(None, "CPU threads of the arithmetic; null: torch's choice")
    gradient_clip: float | None = setting(None, "ceiling on the norm of the gradient; null: none")
    ema: float | None = setting(
        None,
        "decay a step of a moving average of the weights, such as 0.999, which svt average choose=ema releases; null: "
        "none is kept",
    )
    nonfinite_patience: int = setting(5, "successive skipped steps (loss or gradient not finite) that end the run")
    checkpoint_minutes: float = setting(10.0, "full state at least so often, at an epoch's end and on SIGTERM/SIGINT")
    checkpoint_steps: int = setting(0, "full state also every so many steps; 0: not by steps")
    keep_states: int = setting(2, "newest full states kept: the older is the fall-back of the newer")
    keep_last: int = setting(10, "epochs whose weights are kept for averaging: the newest ...")
    keep_best: int = setting(1, "... and the best by validation EER")
    loggers: list[str] = setting(
        ["tensorboard"], "told of a run beside its history.jsonl: tensorboard, csv, wandb, mlflow; []: none"
    )
    logger_settings: dict[str, Any] = setting({}, "of loggers, by name: {wandb:{project:voices,mode:offline}}")
    log_steps: int = setting(10, "steps from one record of history and loggers to the next")
    channels_last: bool = setting(
        True,
        "memory layout of the convolutions: faster on CPUs and with autocast; left out for narrow networks on a CPU",
    )
    deterministic: bool = setting(True, "on CUDA: cuDNN's deterministic algorithms, no benchmarking")


@dataclass
class TrainConfig:
    """`svt train`: a speaker embedding network, end to end."""

    exp_dir: str = setting(REQUIRED, "folder of this run: config.yaml, checkpoints/, logs/")
    seed: int = setting(42, "same seed and data: same numbers, whatever the number of workers")
    resume: str = setting("auto", "auto: resume the run that stopped in exp_dir; never: refuse an exp_dir with a run")
    init_from: str | None = setting(
        None, "first weights: a released model, hf://org/name, or the exp_dir of a run; null: random ones"
    )
    front_end: str | None = setting(
        None,
        "with init_from: features of a release that does not say them, such as fbank80 or kaldi_3d; null: what it says",
    )
    init_head: str = setting(
        "new", "with init_from: new; keep: the head of that run; original_speakers: its classes of speed and warp 1"
    )
    data: TrainDataConfig = setting(TrainDataConfig, "training speech and crops")
    features: FeaturesConfig = setting(FeaturesConfig, "the filter bank")
    model: ModelConfig = setting(ResNetConfig, "the network")
    memory: MemoryStrategyConfig = setting(MemoryStrategyConfig, "what becomes of activations")
    loss: LossConfig = setting(LossConfig, "the head over the training speakers")
    pairwise: PairwiseConfig = setting(PairwiseConfig, "a term that compares crops")
    compress: CompressConfig = setting(CompressConfig, "layers of low rank")
    distillation: DistillationConfig = setting(DistillationConfig, "what is learnt from a larger network")
    margin_schedule: MarginScheduleConfig = setting(MarginScheduleConfig, "how the margin grows")
    optim: OptimConfig = setting(SGDConfig, "the optimizer")
    schedule: ScheduleConfig = setting(ScheduleConfig, "the learning rate over steps")
    augment: AugmentConfig = setting(AugmentConfig, "random changes of crops")
    validation: ValidationConfig = setting(ValidationConfig, "held-out training speakers")
    trainer: TrainerConfig = setting(TrainerConfig, "the training loop")


@dataclass
class CrossvalConfig(TrainConfig):
    """`svt crossval`: training on all folds of the speakers but one, evaluation on that, for each fold in turn."""

    folds: int = setting(5, "parts of the speakers of data.train; each is held out once")
    spk2fold: str | None = setting(
        None, "lines `speaker fold`, folds from 1, 0: trains every time; null: drawn, balanced, by fold_seed"
    )
    fold_seed: int = setting(0, "of the folds and of the trials in them: the same for all systems to be compared")
    seeds: list[int] = setting([], "of the trainings: each fold is trained with each; []: with seed alone")
    ensemble: bool = setting(
        False, "true: score the networks of all seeds as one, too (svt ensemble), and pool that in exp_dir/ensemble"
    )
    only: list[int] = setting(
        [],
        "folds of this process, where several share an exp_dir, such as jobs of a cluster; the one that finishes last "
        "pools the scores; []: all",
    )
    minutes: float | None = setting(
        None,
        "training time of a fold: trainer.epochs becomes the number that fits, by an epoch that is timed first; null: "
        "trainer.epochs",
    )
    average: int = setting(5, "epochs that are averaged; where fewer are kept, all of them")
    choose: str = setting("last", "as of svt average: last, best, or ema, the moving average of trainer.ema")
    crops: int | None = setting(None, CROPS)
    crop_seconds: float = setting(4.0, CROP_SECONDS)
    targets_per_speaker: int = setting(45, "most target trials of a speaker; as many non-target trials are drawn")
    backends: list[str] = setting(
        ["cosine", "as-norm"],
        "how each fold is scored: cosine, as-norm, and lda, wccn, plda, with -as-norm behind them or without, of "
        "back ends trained on the training speakers of the fold; may grow when resumed",
    )
    top_n: int = setting(40, "AS-Norm: closest training speakers taken; all where a fold has fewer")
    resamples: int = setting(1000, "bootstrap resamples of the speakers; 0: no intervals")
    confidence: float = setting(0.95, "of the intervals: share of resamples within them")
