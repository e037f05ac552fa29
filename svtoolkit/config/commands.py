"""Settings of the commands beside `svt train`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from svtoolkit.config.setting import REQUIRED, setting
from svtoolkit.config.training import (
    FeaturesConfig,
    LossConfig,
    MemoryStrategyConfig,
    ModelConfig,
    OptimConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)

ROOT = "folder that relative paths of wav.scp are taken from"
CHANNEL = "channel of multi-channel files, counted from 0; null: such files are an error"
RESAMPLE = "convert files of another rate instead of refusing them"
MAX_BAD = "share of the utterances that may be left out for bad audio; any above 0 allows one"


@dataclass
class PrepareConfig:
    """`svt prepare`: a Kaldi data directory of a corpus."""

    corpus: str = setting(
        REQUIRED,
        "synthetic, kaldi, folders (one a speaker), librispeech, voxceleb1, voxceleb2, musan, rirs_noises, cnceleb, "
        "noise and rirs (files of your own)",
    )
    source: list[str] = setting([], "folder(s) of the corpus; several kaldi directories are joined; synthetic: none")
    out: str = setting(REQUIRED, "data directory to write; with a split: parent of train/ and eval/")
    root: str | None = setting(None, "kaldi: folder that relative paths are taken from")
    part: str = setting("all", "voxceleb1, voxceleb2, cnceleb: all, dev (to train on) or test")
    trials: list[str] = setting([], "voxceleb1: official trial lists, .txt or .gz (veri_test2.txt becomes trials_O)")
    other_trials: bool = setting(False, "voxceleb1: take trial lists of that form that are not the official ones")
    jobs: int = setting(1, "parallel workers")
    max_bad: float = setting(0.0, "share of the files that may be left out because they cannot be read or are cut off")
    seed: int = setting(0, "random numbers of the split, the trials and the synthetic speakers")
    limit_speakers: int | None = setting(
        None, "voxceleb1, voxceleb2: so many speakers alone, always the same, and their trials; null: all"
    )
    eval_speakers: int = setting(0, "speakers split off into out/eval, with trials; 0: none (synthetic: at least 2)")
    draw_trials: bool = setting(False, "without a split: draw a trial list where the source brings none")
    speakers: int = setting(60, "synthetic: speakers made, those of the evaluation included")
    utterances_per_speaker: int = setting(20, "synthetic: utterances of each")
    sample_rate: int = setting(16000, "synthetic: Hz")
    targets_per_speaker: int = setting(45, "ceiling on the target trials of one evaluation speaker")


@dataclass
class ArchivesConfig:
    """`svt archives`: whether archives of VoxCeleb, MUSAN, RIRS_NOISES and CN-Celeb are whole (MD5); unpacks them."""

    folder: str = setting(REQUIRED, "where they were downloaded to, under the names that they are published by")
    check: bool = setting(True, "compare with the published checksums; false: unpack whatever has the name")
    unpack: str | None = setting(
        None, "folder to unpack them to, each corpus in one of its own; what a stopped run left there is resumed"
    )
    corpora: list[str] = setting(["vox1", "vox2", "musan", "rirs"], "unpack: these, whose archives must all be there")
    limit_speakers: int | None = setting(
        None, "unpack: of VoxCeleb2 so many speakers alone, those that svt prepare takes; null: all"
    )
    jobs: int = setting(1, "archives read, or files unpacked, at a time")


@dataclass
class ValidateConfig:
    """`svt validate`: every fault of a data directory, or a repaired copy of it."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    root: str | None = setting(None, ROOT)
    against: list[str] = setting([], "other directories that may share no speaker with it (train against eval)")
    sample_rate: int | None = setting(None, "Hz that all audio must have; null: any, but one")
    channel: int | None = setting(None, "channel of multi-channel files, counted from 0; null: such files are a fault")
    check_audio: bool = setting(True, "open and decode every file, or read all features; false: tables only")
    fix: str | None = setting(None, "folder that a repaired copy is written to")
    max_bad: float = setting(
        0.0,
        "share of the utterances with bad audio or features that are taken out of the tables and listed in "
        "bad_files.tsv, but for those in trial lists; any above 0 allows one, 0: a fault like all others",
    )
    jobs: int = setting(1, "parallel readers")


@dataclass
class ConvertConfig:
    """`svt convert`: a data directory whose audio, m4a included, is decoded once, to mono 16-bit files."""

    source: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(
        REQUIRED, "data directory to write, audio in out/audio; what a stopped run left there is resumed"
    )
    root: str | None = setting(None, ROOT)
    format: str = setting("flac", "flac or wav")
    sample_rate: int = setting(16000, "Hz of the files; audio of another rate is converted")
    channel: int | None = setting(None, "channel of multi-channel files, counted from 0; null: such files are bad")
    run_pipes: bool = setting(
        False, "run the piped commands of wav.scp (`sox ... |`), with bash, in root; false: they are an error"
    )
    jobs: int = setting(1, "processes")
    max_bad: float = setting(0.001, MAX_BAD)


@dataclass
class ShardConfig:
    """`svt shard`: a data directory whose audio lies in tar shards (WebDataset layout), found by offset."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(REQUIRED, "data directory of the shards; what a stopped run left there is resumed")
    root: str | None = setting(None, ROOT)
    per_shard: int = setting(1000, "utterances of a shard")
    format: str = setting("flac", "flac (16 bits; segments are cut out) or original (whole files as they are)")
    sample_rate: int | None = setting(None, "Hz that all audio must have; null: each file keeps its own")
    channel: int | None = setting(None, "flac: channel of multi-channel files, from 0; null: such files cannot be used")
    resample: bool = setting(False, "flac: convert files of another rate instead of leaving them out")
    order: str = setting("shuffled", "shuffled: any few shards hold many speakers; sorted: by utterance id")
    seed: int = setting(0, "of the shuffled order")
    max_bad: float = setting(0.001, MAX_BAD)
    jobs: int = setting(1, "processes")


@dataclass
class ComputeFeaturesConfig:
    """`svt features`: the filter bank of whole utterances in Kaldi archives, to train and to embed from."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(REQUIRED, "data directory of the features; what a stopped run left there is resumed")
    root: str | None = setting(None, ROOT)
    format: str = setting(
        "float32", "float32, float16 (half the bytes) or compressed (Kaldi's matrices of one byte a value)"
    )
    per_archive: int = setting(200, "utterances of an archive")
    channel: int | None = setting(None, "channel of multi-channel files, from 0; null: such files cannot be used")
    resample: bool = setting(False, "convert files of another rate than features.sample_rate, not leave them out")
    max_bad: float = setting(0.001, MAX_BAD)
    jobs: int = setting(1, "processes, of one thread each")
    features: FeaturesConfig = setting(FeaturesConfig, "the filter bank")


@dataclass
class AverageConfig:
    """`svt average`: mean of the weights of several epochs as a released model (model.safetensors + model.yaml)."""

    exp_dir: str = setting(REQUIRED, "run of svt train")
    num: int = setting(10, "epochs averaged; where fewer are kept, all of them")
    choose: str = setting("last", "last epochs, or best by validation EER")
    out: str | None = setting(None, "folder of the released model; null: <exp_dir>/model")


@dataclass
class EmbedConfig:
    """`svt embed`: embeddings of whole utterances as Kaldi ark/scp."""

    model: str = setting(REQUIRED, "released model")
    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(
        REQUIRED, "writes <out>.ark, <out>.scp and, with settings and failures, <out>.yaml; resumed from <out>.parts"
    )
    root: str | None = setting(None, ROOT)
    source: str | None = setting(
        None, "files (wav.scp), shards (shards.scp) or features (feats.scp); null: the first of them that is there"
    )
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    precision: str = setting("fp32", "fp32, bf16 or fp16 (autocast)")
    threads: int | None = setting(None, "CPU threads of the arithmetic; null: torch's choice")
    batch_seconds: float = setting(
        120.0, "audio that goes through the network at once, at most; longer recordings go in stretches of that length"
    )
    batch_size: int = setting(32, "utterances of equal length that go together at most, within batch_seconds")
    num_workers: int = setting(1, "reading threads")
    max_bad: float = setting(
        0.0,
        "share of the utterances that may have no embedding, above which the exit status is 1; above 0 one always may",
    )


@dataclass
class ScoreConfig:
    """`svt score`: scores of trials, `enrol test score` a line."""

    trials: str = setting(REQUIRED, "`enrol test target|nontarget`, `1 enrol test` or `enrol test 1`")
    embeddings: str = setting(REQUIRED, "scp of svt embed")
    out: str = setting(REQUIRED, "score file; its settings go to <out>.yaml")
    format: str = setting("kaldi", "kaldi (`enrol test score`) or wespeaker (`enrol test score target|nontarget`)")
    normalisation: str = setting("none", "none (cosine), z-norm, t-norm, s-norm or as-norm")
    cosine_out: str | None = setting(None, "score file of the cosines before normalisation, from the same pass")
    cohort: str | None = setting(None, "scp of the cohort's embeddings (usually the training set's)")
    cohort_utt2spk: str | None = setting(
        None, "speakers of the cohort: one mean vector each; null: every row of the cohort is a member as it is"
    )
    utt2spk: str | None = setting(None, "speakers of the trials: refused where they overlap the cohort's")
    top_n: int | None = setting(
        None,
        "as-norm: closest cohort members taken, an error if the cohort has fewer; null: 300, or all of a smaller one",
    )
    subtract_mean: bool = setting(False, "subtract the mean embedding of the cohort first")
    enrolments: str | None = setting(
        None, "enrolment map, `model utterance ...` a line: trials name models in place of enrolment utterances"
    )
    enrolment_mean: str = setting("embeddings", "of a model's utterances: embeddings or scores")
    allow_missing: bool = setting(False, "leave out trials whose embedding is missing instead of stopping")


@dataclass
class SearchConfig:
    """`svt search`: the nearest of many embeddings, `query neighbour cosine` a line, the nearest first."""

    embeddings: str = setting(REQUIRED, "scp of the embeddings that are looked for")
    among: str = setting(REQUIRED, "scp of those that are looked through, millions or few")
    out: str = setting(REQUIRED, "file of the neighbours; its settings go to <out>.yaml")
    n: int = setting(10, "neighbours of each")
    index: str = setting(
        "exact", "exact (all are compared, a part at a time) or faiss (an inverted index in memory; states its recall)"
    )
    probes: int = setting(32, "faiss: cells of the index that are looked through; more find more, and take longer")


@dataclass
class EvaluateConfig:
    """`svt evaluate`: EER, minDCF, Cllr, minCllr and a bootstrap interval of a score file."""

    scores: str = setting(REQUIRED, "score file, `enrol test score` or `enrol test score target|nontarget`")
    trials: str = setting(REQUIRED, "trial list of the score file")
    out: str | None = setting(None, "result file; null: <scores>.json")
    name: str | None = setting(None, "name of the evaluation in the report; null: that of the score file's folder")
    utt2spk: str | None = setting(None, "speakers of the trials; without it there is no interval")
    resamples: int = setting(1000, "bootstrap resamples of the speakers; 0: no interval")
    confidence: float = setting(0.95, "of the bootstrap interval: share of resamples within it")
    seed: int = setting(0, "of the bootstrap's random numbers")
    fa_rate: float | None = setting(None, "false-alarm rate whose threshold is wanted; null: that of equal errors")
    store_threshold: str | None = setting(
        None, "released model that gets the threshold and a calibration (plain cosine scores only)"
    )
    allow_missing: bool = setting(False, "accept a score file that lacks trials of the list")


@dataclass
class ReportConfig:
    """`svt report`: result.json, figures and one page that opens offline; several systems are compared in pairs."""

    results: list[str] = setting([], "files of svt evaluate")
    scores: list[str] = setting([], "score files, of any toolkit, that are evaluated here, on trials and utt2spk")
    trials: str | None = setting(None, "trial list of scores")
    utt2spk: str | None = setting(
        None, "speakers of the trials, for intervals and comparisons; null: those that svt evaluate was given"
    )
    names: list[str] = setting([], "names of the systems, one a result, then one a score file; []: from the files")
    compare: str = setting(
        "auto",
        "systems of the same trials in pairs: auto (a list that differs is another evaluation, and needs another "
        "name), all (a list that differs is refused) or none",
    )
    resamples: int = setting(
        1000, "bootstrap resamples of the speakers, more where many pairs need them; 0: no comparison"
    )
    confidence: float = setting(0.95, "one less the chance that any two systems of equal quality are told apart")
    seed: int = setting(0, "of the bootstrap's random numbers")
    out: str = setting(REQUIRED, "folder of the report")
    exp_dir: str | None = setting(None, "run whose learning curves, training data and configuration are shown")
    model: str | None = setting(None, "released model whose facts are shown; null: that of the embeddings")


@dataclass
class VerifyConfig:
    """`svt verify`: score and decision; exit status 0 same speaker, 2 different speakers, 3 no threshold, 1 error."""

    model: str = setting(REQUIRED, "released model")
    enrol: list[str] = setting([], "audio file of a known speaker; of several the embeddings are averaged")
    test: str | None = setting(None, "audio file to compare with")
    pairs: str | None = setting(None, "file of lines `enrol test`, in place of both; exit status 0: all were compared")
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    threshold: float | None = setting(None, "decision threshold on the cosine; null: the one stored in the model")
    min_voice: float = setting(0.3, "seconds of voice that every file must have; 0: not checked")
    format: str = setting("text", "text or json (one record a line), on standard output")
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)


@dataclass
class CalibrateConfig:
    """`svt calibrate`: a threshold from recordings of one's own speakers, stored in the released model."""

    model: str = setting(REQUIRED, "released model that gets the threshold")
    data: str = setting(REQUIRED, "Kaldi data directory of 5 speakers or more, each with 2 recordings or more")
    fa_rate: float = setting(0.01, "share of pairs of different speakers that may be accepted")
    store: bool = setting(True, "write the threshold into the model; false: say it only")
    root: str | None = setting(None, ROOT)
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)
    min_voice: float = setting(0.3, "recordings with fewer seconds of voice are left out; 0: none is")
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    threads: int | None = setting(None, "CPU threads of the arithmetic; null: torch's choice")


@dataclass
class MemoryPredictionConfig:
    """`svt memory`: what a training step needs, by what it is for; predicted on fake tensors in a few seconds."""

    frames: int = setting(200, "frames of a crop, 10 ms each")
    batch_size: int = setting(64, "crops in memory at once on a device: trainer.micro_batch, or its share of the batch")
    devices: int = setting(1, "that train together; the memory is that of one. loss.shard=true: they share the classes")
    precision: str = setting("fp32", "fp32, bf16 (autocast) or fp16 (autocast with loss scaling)")
    num_classes: int = setting(17982, "training speakers x speeds: 3 x 5994 of VoxCeleb2")
    num_bins: int = setting(80, "bins of the filter bank")
    channels_last: bool = setting(True, "memory layout of the convolutions")
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


@dataclass(frozen=True)
class Command:
    """One line of the table of commands.

    Attributes:
        settings: dataclass of its keys.
        summary: what it does.
        positional: keys that may be given by position.
        example: words that compose.
    """

    settings: type[Any]
    summary: str
    positional: tuple[str, ...] = ()
    example: str = ""


COMMANDS: dict[str, Command] = {
    "archives": Command(
        ArchivesConfig,
        "check downloaded archives by their published checksums, unpack them",
        ("folder",),
        "downloads jobs=4",
    ),
    "prepare": Command(
        PrepareConfig, "make a Kaldi data directory of a corpus", (), "corpus=folders --source speech out=data/mine"
    ),
    "validate": Command(
        ValidateConfig, "check a data directory, repair a copy", ("data",), "data/train --against data/eval"
    ),
    "convert": Command(
        ConvertConfig, "decode audio once, to flac or wav", (), "source=data/vox2_m4a out=data/vox2 jobs=8"
    ),
    "shard": Command(ShardConfig, "write audio into tar shards", (), "data=data/train out=data/train_shards jobs=4"),
    "features": Command(
        ComputeFeaturesConfig,
        "write the filter bank of whole utterances into Kaldi archives",
        (),
        "data=data/train out=data/train_features format=float16 jobs=4",
    ),
    "train": Command(
        TrainConfig, "train a speaker embedding network", (), "model=resnet34 data.train=data/train exp_dir=exp/r34"
    ),
    "average": Command(AverageConfig, "average checkpoints into a released model", ("exp_dir",), "exp/r34 num=10"),
    "embed": Command(
        EmbedConfig, "extract embeddings of whole utterances", (), "model=exp/r34/model data=data/eval out=exp/r34/eval"
    ),
    "score": Command(
        ScoreConfig,
        "score trials: cosine, Z-, T-, S- and AS-Norm",
        (),
        "trials=t embeddings=e.scp out=s normalisation=as-norm",
    ),
    "search": Command(
        SearchConfig, "the nearest of millions of embeddings", (), "embeddings=a.scp among=b.scp n=10 out=nearest"
    ),
    "evaluate": Command(EvaluateConfig, "EER, minDCF, Cllr and intervals of a score file", (), "scores=s trials=t"),
    "report": Command(
        ReportConfig, "result.json and a page that opens offline", (), "results=[a.json,b.json] out=exp/r34/report"
    ),
    "memory": Command(
        MemoryPredictionConfig,
        "where the memory of a training step goes",
        (),
        "model=revnet197 memory=reversible batch_size=64",
    ),
    "models": Command(ModelsConfig, "the networks: layers, parameters, MACs, memory", ("names",), "revnet* resnet34"),
    "verify": Command(
        VerifyConfig, "do two recordings share a speaker?", ("model", "enrol", "test"), "exp/r34/model a.wav b.wav"
    ),
    "calibrate": Command(
        CalibrateConfig,
        "a threshold from your own recordings",
        ("model", "data"),
        "exp/r34/model data/mine",
    ),
    "recipe": Command(
        RecipeConfig, "copy a recipe, from speech to an equal error rate, to run it", ("name", "out"), "mini my_folder"
    ),
    "copy": Command(
        CopyConfig,
        "copy an experiment or a preset, to change it",
        ("name", "out"),
        "experiment/mini mine.yaml",
    ),
    "completion": Command(CompletionConfig, "print what completes words on Tab, for your shell", ("shell",), "bash"),
}
"""What `svt` can do; a command is the module of that name in svtoolkit/commands."""

MULTIRUN, DRY_RUN = "--multirun", "--dry-run"
FLAGS_OF_TRAIN = {
    MULTIRUN: "a run for every combination of values with commas between them, seed=1,2,3",
    DRY_RUN: "what the run would take: steps, memory, disk, days; nothing is written",
}
