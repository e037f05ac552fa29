"""Schema of `svt train`: a dataclass for every group of conf/ and for the whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from svtoolkit.config.required import REQUIRED


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
    """The speaker embedding network: what all have in common, and all that most have."""

    name: str = REQUIRED
    """A name of `svtoolkit.models.list_models()`."""
    embedding_dim: int = 256


@dataclass
class ResNetConfig(ModelConfig):
    name: str = "resnet34"
    base_width: int | None = None
    """Channels of the first stage; None: as published."""


@dataclass
class MemoryConfig:
    """What becomes of activations between forward and backward pass."""

    strategy: str = "auto"
    """auto, store or reversible."""
    exact: bool = True
    """Exact arithmetic in reversible stages: gradients are those of stored activations, bit for bit."""
    exact_bits: int = 14
    """Exact streams are multiples of 2**-exact_bits and hold values below 2**(24 - exact_bits)."""


@dataclass
class LossConfig:
    """Classification head over the training speakers."""

    name: str = "aam"
    """aam, am or softmax."""
    margin: float = 0.2
    """Radians for aam, cosine for am; unused by softmax."""
    scale: float = 32.0
    shard: bool = False
    """Spread the classes over all devices."""


@dataclass
class MarginScheduleConfig:
    """How the margin grows to loss.margin."""

    name: str = "exponential"
    """constant, linear or exponential."""
    initial: float = 0.0
    start_epoch: float = 19.0
    """Epochs after which the growth begins."""
    end_epoch: float = 39.0
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
    lr: float = 0.4
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
class SGD8bitConfig(SGDConfig):
    name: str = "sgd_8bit"
    block_size: int = 2048
    """Values of the state that share a scale."""
    min_8bit_size: int = 4096
    """Parameters with fewer values keep float32 state."""
    backend: str = "auto"
    """auto, torch or bitsandbytes."""


@dataclass
class AdamW8bitConfig(AdamWConfig):
    name: str = "adamw_8bit"
    block_size: int = 2048
    """Values of the state that share a scale."""
    min_8bit_size: int = 4096
    """Parameters with fewer values keep float32 state."""
    backend: str = "auto"
    """auto, torch or bitsandbytes."""


@dataclass
class ScheduleConfig:
    """Learning rate over optimizer steps."""

    name: str = "exponential"
    """exponential, cosine or one_cycle."""
    warmup_epochs: float = 6.0
    """Epochs of the linear rise (one_cycle: of the cosine rise) to optim.lr."""
    initial_lr: float = 0.0
    """Rate at step 0 where there is a warm-up."""
    final_lr: float = 2e-4
    """Rate at the last step."""


@dataclass
class TrainDataConfig:
    """Where training speech comes from and how crops are cut."""

    train: str = REQUIRED
    """Kaldi data directory."""
    root: str | None = None
    """Folder that relative paths of wav.scp (shards: folder or URL that shards) are taken from."""
    source: str | None = None
    """files (wav.scp) or shards (shards.scp); None: files where there is wav.scp."""
    cache_dir: str | None = None
    """Folder that shards at a URL are kept in; None: shards are local."""
    cache_gib: float = 50.0
    """Most that it may hold."""
    shuffle_shards: int | None = None
    """Shards whose utterances are shuffled together; None: all."""
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
    spec_probability: float = 0.6
    """Share of crops that get SpecAug masks."""
    time_masks: int = 1
    time_width: int = 10
    """Widest time mask, frames."""
    freq_masks: int = 1
    freq_width: int = 8
    """Widest frequency mask, bins."""
    noise: str | None = None
    """Data directory whose speakers are noise, music and speech; None: no noise."""
    reverberation: str | None = None
    """Data directory of room impulse responses; None: no reverberation."""
    device: str = "worker"
    """Where noise and rooms are computed: worker (loader process) or batch (training device)."""
    probability: float = 0.6
    """Share of crops that noise, room, gain or telephone change at all."""
    only_noise_weight: float = 1.0
    """Of those, in proportion: noise alone, ..."""
    only_reverberation_weight: float = 1.0
    """... a room alone, ..."""
    both_weight: float = 1.0
    """... both."""
    noise_weight: float = 1.0
    """What is mixed in, in proportion: noise, ..."""
    music_weight: float = 1.0
    """... music, ..."""
    babble_weight: float = 1.0
    """... several talkers."""
    noise_snr: list[float] = field(default_factory=lambda: [0.0, 15.0])
    """Lowest and highest signal-to-noise ratio, dB."""
    music_snr: list[float] = field(default_factory=lambda: [5.0, 15.0])
    babble_snr: list[float] = field(default_factory=lambda: [10.0, 30.0])
    babble_talkers: list[int] = field(default_factory=lambda: [3, 7])
    """Fewest and most talkers of a babble."""
    gain: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Lowest and highest gain of changed crops, dB."""
    telephone_probability: float = 0.0
    """Share of changed crops that go through a G.711 telephone line."""


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
    """Crops in memory at once on a device; None: its share of the batch."""
    precision: str = "fp32"
    """fp32, bf16 or fp16."""
    device: str = "auto"
    """auto, cpu or cuda."""
    devices: int = 1
    """Cards of this machine (CPU: processes) that share the batch."""
    sync_batch_norm: bool = False
    """BatchNorm over the crops of all devices."""
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
    """Memory layout of the convolutions; left out where it fails (svtoolkit/planning/memory_layout.py)."""
    deterministic: bool = True
    """On CUDA: cuDNN's deterministic algorithms."""


@dataclass
class TrainConfig:
    """`svt train`."""

    exp_dir: str = REQUIRED
    seed: int = 42
    resume: str = "auto"
    """auto: go on where a run in exp_dir stopped; never: refuse an exp_dir that holds a run."""
    init_from: str | None = None
    """Released model, or exp_dir of a run, whose weights a new run begins with; None: random ones."""
    init_head: str = "new"
    """new, keep (the head of that run) or original_speakers (its classes of speed 1)."""
    data: TrainDataConfig = field(default_factory=TrainDataConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    model: ModelConfig = field(default_factory=ResNetConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    margin_schedule: MarginScheduleConfig = field(default_factory=MarginScheduleConfig)
    optim: OptimConfig = field(default_factory=SGDConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
