"""The schema of conf/: one dataclass a configuration node.

A key that stands in no dataclass, or a value of another type, is refused before anything runs. What a key means is
said twice: shortly here, at length in the YAML of its group. This module imports neither torch nor Hydra, so that
`svt --help` stays instant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

REQUIRED = "???"
"""Marks a key without a default: Hydra refuses to run until it is given."""


@dataclass
class FeaturesConfig:
    """Log-mel filter bank; part of a model's released form."""

    backend: str = "torch"
    """torch or torchaudio."""
    sample_rate: int = 16000
    """Hz; audio of another rate is refused (or converted, see data.resample)."""
    num_bins: int = 80
    frame_length_ms: float = 25.0
    frame_shift_ms: float = 10.0
    window: str = "hamming"
    """hamming, povey, hanning or rectangular."""
    preemphasis: float = 0.97
    low_freq: float = 20.0
    """Hz."""
    high_freq: float = 0.0
    """Hz; 0 or below: offset from the Nyquist frequency."""
    int16_scale: bool = True
    """Multiply samples by 32768 first, as WeSpeaker does."""
    remove_mean: bool = True
    """Subtract the mean over time of the crop or utterance."""


@dataclass
class ModelConfig:
    """The speaker embedding network."""

    name: str = REQUIRED
    """A name of `svtoolkit.models.list_models()`."""
    embedding_dim: int = 256
    base_width: int | None = None
    """Channels of the first stage; None: as published."""


@dataclass
class LossConfig:
    """Classification head over the training speakers."""

    name: str = "aam"
    """aam, am or softmax."""
    margin: float = 0.2
    """Radians for aam, cosine for am; unused by softmax."""
    scale: float = 32.0


@dataclass
class MarginScheduleConfig:
    """How the margin grows to loss.margin."""

    name: str = "exponential"
    """constant, linear or exponential."""
    initial: float = 0.0
    start_epoch: float = 0.0
    """Epochs after which the growth begins."""
    end_epoch: float = 0.0
    """Epochs after which the margin is loss.margin."""


@dataclass
class OptimConfig:
    """What all optimizers share."""

    name: str = REQUIRED
    lr: float = REQUIRED  # type: ignore[assignment]  # the YAML of the group gives it
    """Peak learning rate at the effective batch; never rescaled."""
    weight_decay: float = 0.0


@dataclass
class SGDConfig(OptimConfig):
    name: str = "sgd"
    lr: float = 0.1
    weight_decay: float = 1e-4
    momentum: float = 0.9
    nesterov: bool = True


@dataclass
class AdamWConfig(OptimConfig):
    name: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass
class ScheduleConfig:
    """Learning rate over optimizer steps."""

    name: str = "exponential"
    """exponential, cosine or one_cycle."""
    warmup_epochs: float = 0.0
    """Epochs of the linear rise (one_cycle: of the cosine rise) to optim.lr."""
    initial_lr: float = 0.0
    """Rate at step 0 where there is a warm-up."""
    final_lr: float = 5e-5
    """Rate at the last step."""


@dataclass
class TrainDataConfig:
    """Where training speech comes from and how crops are cut."""

    train: str = REQUIRED
    """Kaldi data directory."""
    root: str | None = None
    """Folder that relative paths of wav.scp are taken from."""
    channel: int | None = None
    resample: bool = False
    crop_frames: int = 200
    speeds: list[float] = field(default_factory=lambda: [1.0, 0.9, 1.1])
    """Speed factors; each makes new classes of all speakers."""
    min_seconds: float = 0.5
    """Shorter utterances are left out of training."""
    num_workers: int = 1
    """Loader processes; 0 loads in the main one. The numbers do not depend on it."""


@dataclass
class AugmentConfig:
    """Random changes of a training crop."""

    dither: float = 1.0
    """Standard deviation of white noise, in 16-bit units."""
    spec_probability: float = 0.0
    """Share of crops that get SpecAug masks."""
    time_masks: int = 1
    time_width: int = 10
    """Widest time mask, frames."""
    freq_masks: int = 1
    freq_width: int = 8
    """Widest frequency mask, bins."""


@dataclass
class ValidationConfig:
    """Held-out training speakers, scored on fixed trials."""

    speakers: int = 20
    """Number of speakers held out of training; 0 turns validation off."""
    targets_per_speaker: int = 10
    every_epochs: int = 1


@dataclass
class TrainerConfig:
    """The loop."""

    epochs: int = 150
    batch_size: int = 256
    """EFFECTIVE batch: crops an optimizer step sees."""
    micro_batch: int | None = None
    """Crops in memory at once; None: the whole batch."""
    precision: str = "fp32"
    """fp32, bf16 or fp16."""
    device: str = "auto"
    """auto, cpu or cuda."""
    threads: int | None = None
    """CPU threads of the arithmetic; None: torch's choice."""
    gradient_clip: float | None = None
    """Ceiling on the norm of the gradient."""
    nonfinite_patience: int = 5
    """Successive steps without a finite loss or gradient before the run ends."""
    checkpoint_minutes: float = 10.0
    checkpoint_steps: int = 0
    """Also save every so many steps; 0: by time, epoch and signal alone."""
    keep_states: int = 2
    keep_last: int = 10
    """Epochs whose weights are kept: the newest ..."""
    keep_best: int = 1
    """... and the best by validation EER."""
    log_steps: int = 10
    channels_last: bool = True
    """Memory layout of the convolutions."""
    deterministic: bool = True
    """On CUDA: cuDNN's deterministic algorithms."""


@dataclass
class TrainConfig:
    """`svt train`."""

    exp_dir: str = REQUIRED
    seed: int = 42
    resume: str = "auto"
    """auto: go on where a run in exp_dir stopped; never: refuse an exp_dir that holds a run."""
    data: TrainDataConfig = field(default_factory=TrainDataConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    margin_schedule: MarginScheduleConfig = field(default_factory=MarginScheduleConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


@dataclass
class PrepareConfig:
    """`svt prepare`."""

    corpus: str = REQUIRED
    """synthetic, kaldi, folders or librispeech."""
    source: list[str] = field(default_factory=list)
    """Folder(s) of the corpus; several kaldi directories are joined."""
    out: str = REQUIRED
    """Data directory to write; with a split: parent of train/ and eval/."""
    root: str | None = None
    jobs: int = 1
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
    """Name in the report; None: the score file's."""
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


SCHEMAS: dict[str, type[Any]] = {
    "train": TrainConfig,
    "prepare": PrepareConfig,
    "validate": ValidateConfig,
    "average": AverageConfig,
    "embed": EmbedConfig,
    "score": ScoreConfig,
    "evaluate": EvaluateConfig,
    "report": ReportConfig,
    "verify": VerifyConfig,
}
"""Command -> schema of its configuration."""

GROUP_SCHEMAS: dict[tuple[str, str], type[Any]] = {
    ("optim", "sgd"): SGDConfig,
    ("optim", "adamw"): AdamWConfig,
}
"""(group, option) -> schema, where the options of a group have different keys."""
