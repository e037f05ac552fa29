"""Front ends of released models: settings that begin as the toolkit that made them has them.

What a model was trained on is no choice: most keys are fixed, and refused when they are set to anything else
(``svtoolkit.models.front_ends`` says which are free).
"""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.features import FeaturesConfig
from svtoolkit.config.setting import setting

CROP_FRAME_MS = 10.0
"""Milliseconds of a frame of ``data.crop_frames`` where a frame of the front end is a sample."""

BACKEND = "the front end; choose with features=..."
BINS = "mel filters"
LOW, HIGH = "lower edge of the first filter, Hz", "upper edge of the last filter, Hz; 0 or below: offset from Nyquist"
EMPHASIS = "y[t] = x[t] - preemphasis x[t-1]; 0: none"


@dataclass
class Kaldi3DConfig(FeaturesConfig):
    """3D-Speaker's filter bank."""

    backend: str = setting("kaldi_3d", BACKEND)
    window: str = setting("povey", "fixed")
    int16_scale: bool = setting(False, "fixed: samples stay in [-1, 1]")


@dataclass
class _SpectrogramConfig(FeaturesConfig):
    """A mel spectrogram of samples in [-1, 1]."""

    preemphasis: float = setting(0.0, EMPHASIS)
    low_freq: float = setting(0.0, LOW)
    int16_scale: bool = setting(False, "fixed: samples stay in [-1, 1]")


@dataclass
class SpeechBrain80Config(_SpectrogramConfig):
    """SpeechBrain's Fbank and InputNormalization of its ECAPA-TDNN and ResNet, with any number of bins."""

    backend: str = setting("sb80", BACKEND)


@dataclass
class SpeechBrain24Config(_SpectrogramConfig):
    """SpeechBrain's Fbank and InputNormalization of its x-vector."""

    backend: str = setting("sb24", BACKEND)
    num_bins: int = setting(24, BINS)


@dataclass
class Nemo80Config(_SpectrogramConfig):
    """NeMo's AudioToMelSpectrogramPreprocessor of TitaNet."""

    backend: str = setting("nemo80", BACKEND)
    window: str = setting("hanning", "fixed")
    preemphasis: float = setting(0.97, EMPHASIS)


@dataclass
class ClovaConfig(_SpectrogramConfig):
    """The mel spectrogram of clovaai/voxceleb_trainer."""

    backend: str = setting("clova", BACKEND)
    num_bins: int = setting(40, BINS)
    preemphasis: float = setting(0.97, EMPHASIS)


@dataclass
class ReDimNetConfig(_SpectrogramConfig):
    """ReDimNet's mel spectrogram by torchaudio."""

    backend: str = setting("redim_pt", BACKEND)
    num_bins: int = setting(72, BINS)
    preemphasis: float = setting(0.97, EMPHASIS)
    low_freq: float = setting(20.0, LOW)
    high_freq: float = setting(7600.0, HIGH)
    norm_signal: bool = setting(False, "first make the waveform one of mean 0 and standard deviation 1")
    pad_right: int = setting(0, "zeros behind every waveform, in samples")


@dataclass
class ReDimNetTFConfig(ReDimNetConfig):
    """ReDimNet's mel spectrogram as TensorFlow computes it."""

    backend: str = setting("redim_tf", BACKEND)


@dataclass
class WaveformConfig(FeaturesConfig):
    """The waveform itself."""

    backend: str = setting("waveform", BACKEND)
    num_bins: int = setting(1, "fixed: every sample is a frame of one value")
    frame_length_ms: float = setting(325.0, "fewest milliseconds that the network can embed")
    frame_shift_ms: float = setting(0.0, "fixed: of no use")
    window: str = setting("rectangular", "fixed")
    preemphasis: float = setting(0.0, "fixed")
    low_freq: float = setting(0.0, "fixed")
    int16_scale: bool = setting(False, "fixed: samples stay in [-1, 1]")
    remove_mean: bool = setting(False, "fixed: norm_signal does it")
    norm_signal: bool = setting(False, "make the waveform one of mean 0 and variance 1")


@dataclass
class Resemblyzer40Config(_SpectrogramConfig):
    """The mel energies of Resemblyzer, neither their logarithm nor centred."""

    backend: str = setting("res40", BACKEND)
    num_bins: int = setting(40, BINS)
    window: str = setting("hanning", "fixed")
    remove_mean: bool = setting(False, "fixed")
