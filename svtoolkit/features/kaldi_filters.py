"""What defines Kaldi's log-mel filter bank: its sizes, its windows and its filters, as tables of numpy.

The steps and their order are those of Kaldi's feat/feature-window.cc, feat/mel-computations.cc and
feat/feature-fbank.cc with ``--snip-edges=true --remove-dc-offset=true --use-energy=false --use-power=true``,
which is also what ``torchaudio.compliance.kaldi.fbank`` does by default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

INT16_FULL_SCALE = 32768.0
VTLN_LOW, VTLN_BELOW_NYQUIST = 100.0, 500.0  # Hz: --vtln-low and --vtln-high of Kaldi
LOG_FLOOR = 1.1920929e-07  # epsilon of float32: Kaldi's floor of a filter's energy

_WINDOWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hamming": lambda phase: 0.54 - 0.46 * np.cos(phase),
    "povey": lambda phase: (0.5 - 0.5 * np.cos(phase)) ** 0.85,
    "hanning": lambda phase: 0.5 - 0.5 * np.cos(phase),
    "rectangular": np.ones_like,
}


@dataclass(frozen=True)
class FilterBankOptions:
    """What defines the features; the fields are explained at ``svtoolkit.config.FeaturesConfig``.

    ``snip_edges``: frames lie wholly within the waveform, and samples after the last one change nothing.
    ``warp``: of the vocal tract, as in ``warp_frequencies``; of training crops alone, and no part of a model.

    Raises:
        ValueError: a value out of range, or filters so narrow that one of them covers no point of the spectrum.
    """

    sample_rate: int = 16000
    num_bins: int = 80
    frame_length_ms: float = 25.0
    frame_shift_ms: float = 10.0
    window: str = "hamming"
    preemphasis: float = 0.97
    low_freq: float = 20.0
    high_freq: float = 0.0
    int16_scale: bool = True
    warp: float = 1.0

    snip_edges = True

    def __post_init__(self) -> None:
        if self.window not in _WINDOWS:
            raise ValueError(f"features.window is {self.window!r:.80}, expected one of {', '.join(_WINDOWS)}")
        if self.num_bins < 4:
            raise ValueError(f"features.num_bins is {self.num_bins}, expected 4 filters or more")
        if not 0.0 <= self.preemphasis <= 1.0:
            raise ValueError(f"features.preemphasis is {self.preemphasis}, expected a factor from 0 to 1")
        if self.window_samples < 2 or self.shift_samples < 1:
            raise ValueError(
                f"features.frame_length_ms={self.frame_length_ms} and features.frame_shift_ms={self.frame_shift_ms} "
                f"at {self.sample_rate} Hz make windows of {self.window_samples} samples every {self.shift_samples}, "
                "expected 2 samples or more and a shift of 1 or more"
            )
        if not 0.0 <= self.low_freq < self.upper_edge <= self.sample_rate / 2:
            raise ValueError(
                f"features.low_freq={self.low_freq} and features.high_freq={self.high_freq} make a band from "
                f"{self.low_freq} to {self.upper_edge} Hz, expected a band within 0 to {self.sample_rate / 2} Hz"
            )
        if self.warp != 1.0:
            self._check_warp()
        empty = np.flatnonzero(mel_filters(self).sum(axis=0) == 0.0)
        if len(empty):
            raise ValueError(
                f"features.num_bins is {self.num_bins}, but filter {empty[0]} (counted from 0) is so narrow that it "
                f"covers no point of the {self.fft_samples}-point spectrum; lower features.num_bins or raise "
                "features.frame_length_ms"
            )

    def _check_warp(self) -> None:
        low, high = VTLN_LOW, self.sample_rate / 2 - VTLN_BELOW_NYQUIST
        if not self.low_freq < low < high < self.upper_edge:
            raise ValueError(
                f"a warped filter bank bends at {low:g} and {high:g} Hz, which its band from {self.low_freq} to "
                f"{self.upper_edge} Hz has to contain; train with data.warps=[1.0], or widen the band by "
                "features.low_freq and features.high_freq"
            )
        if not low * max(1.0, self.warp) < high * min(1.0, self.warp):
            raise ValueError(
                f"a warp of {self.warp} leaves nothing between {low:g} and {high:g} Hz, between which it is exact; "
                "choose data.warps closer to 1"
            )

    @property
    def window_samples(self) -> int:
        """Window in samples, truncated in Kaldi's order of operations."""
        return int(self.sample_rate * 0.001 * self.frame_length_ms)

    @property
    def shift_samples(self) -> int:
        return int(self.sample_rate * 0.001 * self.frame_shift_ms)

    @property
    def fft_samples(self) -> int:
        """The window rounded up to a power of two."""
        return 1 << (self.window_samples - 1).bit_length()

    @property
    def upper_edge(self) -> float:
        """Upper edge of the last filter, Hz."""
        return self.high_freq if self.high_freq > 0.0 else self.sample_rate / 2 + self.high_freq

    def num_frames(self, samples: int) -> int:
        """Frames that lie wholly within so many samples (Kaldi's ``snip_edges``); 0 if they fill no window."""
        return max(0, 1 + (samples - self.window_samples) // self.shift_samples)

    def num_samples(self, frames: int) -> int:
        """Fewest samples that give so many frames.

        Raises:
            ValueError: fewer than one frame.
        """
        if frames < 1:
            raise ValueError(f"{frames} frames have no length in samples, expected 1 frame or more")
        return (frames - 1) * self.shift_samples + self.window_samples


def window_function(name: str, samples: int) -> np.ndarray:
    """A window of Kaldi's feat/feature-window.cc: float64, shape (samples,)."""
    return _WINDOWS[name](np.linspace(0.0, 2.0 * np.pi, samples))


def mel_filters(options: FilterBankOptions) -> np.ndarray:
    """Triangles that are linear and equally spaced in mel, of height 1: float64, (fft_samples / 2 + 1, num_bins).

    mel(f) = 1127 ln(1 + f / 700), as in Kaldi's feat/mel-computations.h; columns are not normalised by their area.
    With a warp the edges and centres are those of ``warp_frequencies``, as in its feat/mel-computations.cc.
    """
    frequencies = np.arange(options.fft_samples // 2 + 1) * (options.sample_rate / options.fft_samples)
    points = _mel(frequencies)[:, np.newaxis]
    edges = np.linspace(_mel(options.low_freq), _mel(options.upper_edge), options.num_bins + 2)
    if options.warp != 1.0:
        edges = _mel(warp_frequencies(700.0 * np.expm1(edges / 1127.0), options))
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (points - left) / (centre - left)
    falling = (right - points) / (right - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


def warp_frequencies(hertz: np.ndarray, options: FilterBankOptions) -> np.ndarray:
    """Where edges and centres of filters go, so that formants look ``warp`` times as high: a shorter vocal tract's.

    They go to f / warp, but the ends of the band stay: below 100 Hz x max(1, warp) and above (Nyquist - 500 Hz) x
    min(1, warp) the way there is linear (VtlnWarpFreq of Kaldi's feat/mel-computations.cc, with the cut-offs that its
    commands have by default).

    Args:
        hertz: frequencies of any shape, within the band of ``options``.
    """
    warp, bottom, top = options.warp, options.low_freq, options.upper_edge
    low = VTLN_LOW * max(1.0, warp)
    high = (options.sample_rate / 2 - VTLN_BELOW_NYQUIST) * min(1.0, warp)
    return np.interp(hertz, [bottom, low, high, top], [bottom, low / warp, high / warp, top])


def _mel(hertz: float | np.ndarray) -> np.ndarray:
    return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)
