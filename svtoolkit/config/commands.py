"""Schemas of the commands beside `svt train`."""

from __future__ import annotations

from dataclasses import dataclass, field

from svtoolkit.config.required import REQUIRED
from svtoolkit.config.training import (
    LossConfig,
    MemoryConfig,
    ModelConfig,
    OptimConfig,
    ResNetConfig,
    SGDConfig,
)


@dataclass
class PrepareConfig:
    """`svt prepare`."""

    corpus: str = REQUIRED
    """synthetic, kaldi, folders, librispeech, voxceleb1, voxceleb2, musan, rirs_noises or cnceleb."""
    source: list[str] = field(default_factory=list)
    """Folder(s) of the corpus; several kaldi directories are joined."""
    out: str = REQUIRED
    """Data directory to write; with a split: parent of train/ and eval/."""
    root: str | None = None
    part: str = "all"
    """VoxCeleb and CN-Celeb: all, dev or test."""
    trials: list[str] = field(default_factory=list)
    """VoxCeleb1: official trial lists."""
    other_trials: bool = False
    """VoxCeleb1: take trial lists that are not the official ones."""
    jobs: int = 1
    max_bad: float = 0.0
    """Share of the files that may be left out because they cannot be read or are cut off."""
    seed: int = 0
    eval_speakers: int = 0
    """Speakers split off into out/eval (synthetic: of the speakers made); 0: no split."""
    draw_trials: bool = False
    """Without a split: draw a trial list where the source brings none."""
    speakers: int = 60
    """Synthetic corpus: speakers made."""
    utterances_per_speaker: int = 20
    """Synthetic corpus: utterances of each."""
    sample_rate: int = 16000
    """Synthetic corpus: Hz."""
    targets_per_speaker: int = 45
    """Ceiling on the target trials of one evaluation speaker."""


@dataclass
class ArchivesConfig:
    """`svt archives`."""

    folder: str = REQUIRED
    """Where the archives were downloaded to."""
    jobs: int = 1


@dataclass
class ValidateConfig:
    """`svt validate`."""

    data: str = REQUIRED
    root: str | None = None
    against: list[str] = field(default_factory=list)
    """Directories that may share no speaker with it."""
    sample_rate: int | None = None
    channel: int | None = None
    check_audio: bool = True
    fix: str | None = None
    """Folder that a repaired copy is written to."""
    jobs: int = 1


@dataclass
class ConvertConfig:
    """`svt convert`."""

    source: str = REQUIRED
    out: str = REQUIRED
    root: str | None = None
    format: str = "flac"
    """flac or wav."""
    sample_rate: int = 16000
    channel: int | None = None
    jobs: int = 1
    max_bad: float = 0.001
    """Share of the utterances that may be left out for bad audio."""


@dataclass
class AverageConfig:
    """`svt average`."""

    exp_dir: str = REQUIRED
    num: int = 10
    """Checkpoints averaged."""
    choose: str = "last"
    """last or best (by validation EER)."""
    out: str | None = None
    """Released model; None: <exp_dir>/model."""


@dataclass
class EmbedConfig:
    """`svt embed`."""

    model: str = REQUIRED
    data: str = REQUIRED
    out: str = REQUIRED
    """Writes <out>.ark and <out>.scp."""
    root: str | None = None
    channel: int | None = None
    resample: bool = False
    device: str = "auto"
    precision: str = "fp32"
    threads: int | None = None
    batch_size: int = 32
    """Utterances of equal length that go together at most."""
    num_workers: int = 1


@dataclass
class ScoreConfig:
    """`svt score`."""

    trials: str = REQUIRED
    embeddings: str = REQUIRED
    """scp written by `svt embed`."""
    out: str = REQUIRED
    normalisation: str = "none"
    """none, s-norm or as-norm."""
    cohort: str | None = None
    """scp of the cohort's embeddings."""
    cohort_utt2spk: str | None = None
    """Speakers of the cohort: one mean vector each."""
    utt2spk: str | None = None
    """Speakers of the trials: refused where they overlap the cohort's."""
    top_n: int = 300
    subtract_mean: bool = False
    """Subtract the cohort's mean embedding first."""
    allow_missing: bool = False
    """Leave out trials whose embedding is missing instead of stopping."""


@dataclass
class EvaluateConfig:
    """`svt evaluate`."""

    scores: str = REQUIRED
    trials: str = REQUIRED
    out: str | None = None
    """result.json; None: <scores>.json."""
    name: str | None = None
    """Name in the report; None: that of the score file's folder."""
    utt2spk: str | None = None
    """Speakers of the trials: needed for the bootstrap interval."""
    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0
    store_threshold: str | None = None
    """Released model that gets the EER threshold."""
    allow_missing: bool = False


@dataclass
class ReportConfig:
    """`svt report`."""

    results: list[str] = field(default_factory=list)
    """Files written by `svt evaluate`."""
    out: str = REQUIRED
    exp_dir: str | None = None
    """Run whose history and config are shown."""
    model: str | None = None


@dataclass
class VerifyConfig:
    """`svt verify`."""

    model: str = REQUIRED
    enrol: str = REQUIRED
    test: str = REQUIRED
    device: str = "auto"
    threshold: float | None = None
    """Decision threshold; None: the one stored with the model."""
    channel: int | None = None
    resample: bool = False


@dataclass
class MemoryCommandConfig:
    """`svt memory`."""

    frames: int = 200
    batch_size: int = 64
    """Utterances that are in memory at once, on each device."""
    devices: int = 1
    """That train together, of which this is the memory of one."""
    precision: str = "fp32"
    num_classes: int = 17982
    """Training speakers x speeds."""
    num_bins: int = 80
    channels_last: bool = True
    budget_gib: float = 11.0
    """Memory that the largest batch is to fit in."""
    device: str = "auto"
    """auto or cpu: foreseen without arithmetic; cuda: run there."""
    format: str = "table"
    """table or json."""
    model: ModelConfig = field(default_factory=ResNetConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optim: OptimConfig = field(default_factory=SGDConfig)


@dataclass
class ModelsConfig:
    """`svt models`."""

    names: list[str] = field(default_factory=list)
    """Names or patterns such as revnet*; none: all."""
    frames: int = 200
    num_bins: int = 80
    format: str = "table"
    """table or json."""


@dataclass
class ShardConfig:
    """`svt shard`."""

    data: str = REQUIRED
    out: str = REQUIRED
    root: str | None = None
    per_shard: int = 1000
    """Utterances of a shard."""
    format: str = "flac"
    """flac or original."""
    sample_rate: int | None = None
    channel: int | None = None
    resample: bool = False
    order: str = "shuffled"
    """shuffled or sorted."""
    seed: int = 0
    max_bad: float = 0.001
    """Share of the utterances that may be left out for bad audio."""
    jobs: int = 1
