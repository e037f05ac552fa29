"""Settings of the filter bank."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import setting


@dataclass
class FeaturesConfig:
    """Kaldi-compatible log-mel filter bank; stored with the released model and used by every command."""

    backend: str = setting("torch", "torch: own code on the training device; torchaudio: where it can be imported")
    sample_rate: int = setting(16000, "Hz")
    num_bins: int = setting(80, "mel filters")
    frame_length_ms: float = setting(25.0, "window, milliseconds")
    frame_shift_ms: float = setting(10.0, "step from frame to frame, milliseconds")
    window: str = setting("hamming", "hamming (WeSpeaker), povey (Kaldi, 3D-Speaker), hanning or rectangular")
    preemphasis: float = setting(0.97, "y[t] = x[t] - preemphasis x[t-1]")
    low_freq: float = setting(20.0, "lower edge of the first filter, Hz")
    high_freq: float = setting(0.0, "upper edge of the last filter, Hz; 0 or below: offset from the Nyquist frequency")
    int16_scale: bool = setting(True, "multiply samples in [-1, 1] by 32768 first, as Kaldi and WeSpeaker do")
    remove_mean: bool = setting(True, "subtract the mean over time of the crop or utterance")
