"""The table of commands: what `svt` can do, and where the settings of each are."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """One line of the table.

    Attributes:
        target: "module:dataclass" of its keys, in svtoolkit/config, imported when it is first needed.
        summary: what it does.
        positional: keys that may be given by position.
        example: words that compose.
    """

    target: str
    summary: str
    positional: tuple[str, ...] = ()
    example: str = ""

    @property
    def settings(self) -> type[Any]:
        """The dataclass of its keys."""
        module, _, name = self.target.partition(":")
        found: type[Any] = getattr(importlib.import_module(f"svtoolkit.config.{module}"), name)
        return found


COMMANDS: dict[str, Command] = {
    "archives": Command(
        "data:ArchivesConfig",
        "check downloaded archives by their published checksums, unpack them",
        ("folder",),
        "downloads jobs=4",
    ),
    "prepare": Command(
        "data:PrepareConfig",
        "make a Kaldi data directory of a corpus",
        (),
        "corpus=folders --source speech out=data/mine",
    ),
    "validate": Command(
        "data:ValidateConfig", "check a data directory, repair a copy", ("data",), "data/train --against data/eval"
    ),
    "convert": Command(
        "data:ConvertConfig", "decode audio once, to flac or wav", (), "source=data/vox2_m4a out=data/vox2 jobs=8"
    ),
    "shard": Command(
        "data:ShardConfig", "write audio into tar shards", (), "data=data/train out=data/train_shards jobs=4"
    ),
    "features": Command(
        "data:ComputeFeaturesConfig",
        "write the filter bank of whole utterances into Kaldi archives",
        (),
        "data=data/train out=data/train_features format=float16 jobs=4",
    ),
    "train": Command(
        "training:TrainConfig",
        "train a speaker embedding network",
        (),
        "model=resnet34 data.train=data/train exp_dir=exp/r34",
    ),
    "average": Command(
        "commands:AverageConfig", "average checkpoints into a released model", ("exp_dir",), "exp/r34 num=10"
    ),
    "ensemble": Command(
        "commands:EnsembleConfig",
        "several released models as one, whose cosines are the means of theirs",
        (),
        "models=[exp/a/model,exp/b/model] out=exp/ab",
    ),
    "convert-model": Command(
        "commands:ConvertModelConfig",
        "a released model of another toolkit as ours, or ours as WeSpeaker's",
        (),
        "model=voxceleb_resnet34_LM out=exp/voxceleb_resnet34_LM",
    ),
    "reverse": Command(
        "commands:ReverseConfig",
        "a trained ResNet as a reversible network, to fine-tune in less memory",
        (),
        "model=voxceleb_resnet152_LM out=exp/reversed152",
    ),
    "compress": Command(
        "compressed_model:CompressModelConfig",
        "a released model with layers of low rank, and what each layer loses",
        (),
        "model=exp/r34/model out=exp/r34_small variance=0.9",
    ),
    "publish": Command(
        "commands:PublishConfig",
        "a released model of ours on the Hugging Face Hub, with a card",
        (),
        "model=exp/r34/model repo=me/resnet34 license=cc-by-4.0",
    ),
    "export": Command(
        "deploy:ExportConfig",
        "a released model as one ONNX file, compared with torch",
        ("model", "out"),
        "model=exp/r34/model out=r34.onnx",
    ),
    "embed": Command(
        "scoring:EmbedConfig",
        "extract embeddings of whole utterances",
        (),
        "model=exp/r34/model data=data/eval out=exp/r34/eval",
    ),
    "backend": Command(
        "backends:BackendConfig",
        "train LDA, WCCN or PLDA on the embeddings of training speakers",
        (),
        "kind=plda embeddings=train.scp utt2spk=data/train/utt2spk out=plda.safetensors",
    ),
    "score": Command(
        "scoring:ScoreConfig",
        "score trials: cosine or a trained back end, Z-, T-, S- and AS-Norm",
        (),
        "trials=t embeddings=e.scp out=s normalisation=as-norm",
    ),
    "search": Command(
        "scoring:SearchConfig",
        "the nearest of millions of embeddings",
        (),
        "embeddings=a.scp among=b.scp n=10 out=nearest",
    ),
    "quality": Command(
        "fusion:QualityConfig",
        "durations, lengths of embeddings: how far the scores of a recording can be relied on",
        (),
        "data=data/eval embeddings=eval.scp cohort=train.scp out=exp/r34/quality",
    ),
    "fuse": Command(
        "fusion:FuseConfig",
        "scores of several systems, and quality measures, as one calibrated score",
        (),
        "scores=[a,b] trials=data/eval/trials train_scores=[c,d] train_trials=data/heldout/trials out=exp/fused",
    ),
    "evaluate": Command(
        "scoring:EvaluateConfig", "EER, minDCF, Cllr and intervals of a score file", (), "scores=s trials=t"
    ),
    "compare": Command(
        "scoring:CompareConfig",
        "which of several systems is better, or that they cannot be told apart",
        ("results",),
        "a.json b.json out=exp/compared",
    ),
    "crossval": Command(
        "training:CrossvalConfig",
        "train on all folds of the speakers but one and evaluate on that, fold by fold",
        (),
        "experiment=mini data.train=data/all exp_dir=exp/cv folds=5 seeds=[1,2,3]",
    ),
    "report": Command(
        "scoring:ReportConfig",
        "result.json and a page that opens offline",
        (),
        "results=[a.json,b.json] out=exp/r34/report",
    ),
    "memory": Command(
        "commands:MemoryPredictionConfig",
        "where the memory of a training step goes",
        (),
        "model=revnet197 memory=reversible batch_size=64",
    ),
    "plan": Command(
        "commands:PlanConfig",
        "the ways to train a network that fit a card, the quickest first",
        (),
        "gpu=2080ti effective_batch=256 frames=200 model=resnet152",
    ),
    "reversibility": Command(
        "commands:ReversibilityConfig",
        "how well a reversible network finds its activations again",
        (),
        "model=revnext57 out=exp/reversibility",
    ),
    "models": Command(
        "commands:ModelsConfig", "the networks: layers, parameters, MACs, memory", ("names",), "revnet* resnet34"
    ),
    "verify": Command(
        "scoring:VerifyConfig",
        "do two recordings share a speaker?",
        ("model", "enrol", "test"),
        "exp/r34/model a.wav b.wav",
    ),
    "enrol": Command(
        "scoring:EnrolConfig",
        "add a speaker to a store of known speakers",
        ("name", "wavs"),
        "anna monday.wav tuesday.wav store=speakers.db model=exp/r34/model",
    ),
    "identify": Command(
        "scoring:IdentifyConfig", "who of a store is heard?", ("wav",), "test.wav store=speakers.db model=exp/r34/model"
    ),
    "enrolled": Command("scoring:EnrolledConfig", "list the speakers of a store", ("store",), "speakers.db"),
    "forget": Command("scoring:ForgetConfig", "delete a speaker from a store", ("name",), "anna store=speakers.db"),
    "serve": Command(
        "serving:ServeConfig",
        "enrol, verify and identify over HTTP, with a page that records",
        ("model",),
        "exp/r34/model store=speakers.db keys=keys.txt",
    ),
    "calibrate": Command(
        "scoring:CalibrateConfig",
        "a threshold from your own recordings",
        ("model", "data"),
        "exp/r34/model data/mine",
    ),
    "recipe": Command(
        "commands:RecipeConfig",
        "copy a recipe, from speech to an equal error rate, to run it",
        ("name", "out"),
        "mini my_folder",
    ),
    "copy": Command(
        "commands:CopyConfig",
        "copy an experiment or a preset, to change it",
        ("name", "out"),
        "experiment/mini mine.yaml",
    ),
    "completion": Command(
        "commands:CompletionConfig", "print what completes words on Tab, for your shell", ("shell",), "bash"
    ),
}
"""What `svt` can do; a command is the module of that name in svtoolkit/commands."""

MULTIRUN, DRY_RUN = "--multirun", "--dry-run"
FLAGS_OF_TRAIN = {
    MULTIRUN: "a run for every combination of values with commas between them, seed=1,2,3",
    DRY_RUN: "what the run would take: steps, memory, disk, days; nothing is written",
}
