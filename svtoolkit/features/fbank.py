"""Log-mel filter bank that equals Kaldi's ``compute-fbank-feats``, written in torch.

The steps and their order are those of Kaldi's feat/feature-window.cc, feat/mel-computations.cc and
feat/feature-fbank.cc with ``--snip-edges=true --remove-dc-offset=true --use-energy=false --use-power=true``,
which is also what ``torchaudio.compliance.kaldi.fbank`` does by default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

INT16_FULL_SCALE = 32768.0
LOG_FLOOR = 1.1920929e-07  # epsilon of float32: Kaldi's floor of a filter's energy

# Frames that are worked on at once. On a CPU what is made of 640 frames a thread stays in the cache of a core: 128
# crops of 2 s take about a tenth less time than with 2048. Elsewhere the limit bounds the memory, to less than 100 MB.
CPU_CHUNK_FRAMES_PER_THREAD = 640
DEVICE_CHUNK_FRAMES = 8192

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
        empty = np.flatnonzero(mel_filters(self).sum(axis=0) == 0.0)
        if len(empty):
            raise ValueError(
                f"features.num_bins is {self.num_bins}, but filter {empty[0]} (counted from 0) is so narrow that it "
                f"covers no point of the {self.fft_samples}-point spectrum; lower features.num_bins or raise "
                "features.frame_length_ms"
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
    """
    frequencies = np.arange(options.fft_samples // 2 + 1) * (options.sample_rate / options.fft_samples)
    points = _mel(frequencies)[:, np.newaxis]
    edges = np.linspace(_mel(options.low_freq), _mel(options.upper_edge), options.num_bins + 2)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (points - left) / (centre - left)
    falling = (right - points) / (right - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


def dither_noise(samples: int, dither: float, int16_scale: bool, generator: torch.Generator) -> Tensor:
    """White Gaussian noise to add to a waveform in [-1, 1] before the filter bank; for training only.

    Kaldi draws new noise for every frame, so that samples shared by two frames differ between them. Here it is
    drawn once for every sample: the distribution within a frame is the same, overlapping frames share their noise,
    and the noise of an utterance depends on the generator alone, not on batch, device or worker.

    Args:
        samples: length of the waveform.
        dither: standard deviation in the units in which the filter bank works: of 16-bit samples where
            ``int16_scale`` (Kaldi's default is 1.0), of the waveform itself where not.
        int16_scale: that of the front end.
        generator: on the CPU, seeded by the caller from (seed, epoch, utterance).

    Returns:
        float32, shape (samples,), on the CPU.

    Raises:
        ValueError: negative ``dither``.
    """
    if dither < 0.0:
        raise ValueError(f"dither is {dither}, expected a standard deviation of 0 or more")
    deviation = dither / INT16_FULL_SCALE if int16_scale else dither
    return torch.randn(samples, generator=generator).mul_(deviation)


def map_frames(function: Callable[[Tensor], Tensor], frames: Tensor) -> Tensor:
    """A function of frames, (batch, frames, window) -> (batch, frames, bins), so many at once as memory is good for."""
    on_cpu = frames.device.type == "cpu"
    limit = CPU_CHUNK_FRAMES_PER_THREAD * torch.get_num_threads() if on_cpu else DEVICE_CHUNK_FRAMES
    chunks = frames.split(max(1, limit // frames.shape[1]))
    return torch.cat([torch.cat([function(part) for part in rows.split(limit, 1)], 1) for rows in chunks])


class FilterBank(nn.Module):
    """Waveforms -> logarithms of mel energies, without mean removal.

    Deterministic in training as well: noise is added by whoever loads the data (``dither_noise``). Gradients flow
    to the waveforms. The tables stay float32 whatever dtype a model around them is cast to. The sum over a filter is
    a matrix product in float32, to the precision of ``torch.set_float32_matmul_precision`` (full by default).
    """

    window: Tensor
    filters: Tensor

    def __init__(self, options: FilterBankOptions) -> None:
        super().__init__()
        self.options = options
        self._load_tables(torch.device("cpu"))

    def forward(self, waveforms: Tensor) -> Tensor:
        """float32 (batch, samples) in [-1, 1], a window or longer -> float32 (batch, frames, bins)."""
        return map_frames(self._log_mel, waveforms.unfold(1, self.options.window_samples, self.options.shift_samples))

    def _log_mel(self, frames: Tensor) -> Tensor:
        """(batch, frames, window) -> (batch, frames, bins)."""
        preemphasis = self.options.preemphasis
        frames = frames - frames.mean(dim=-1, keepdim=True)
        # The first sample of a frame stands for the one before it.
        first = frames[..., :1] * (1.0 - preemphasis)
        later = torch.sub(frames[..., 1:], frames[..., :-1], alpha=preemphasis)
        spectrum = torch.fft.rfft(torch.cat((first, later), dim=-1).mul_(self.window), n=self.options.fft_samples)
        squares = torch.view_as_real(spectrum).square_()
        power = squares[..., 0] + squares[..., 1]
        return (power @ self.filters).clamp_min_(LOG_FLOOR).log_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FilterBank:
        super()._apply(fn, recurse)
        # Follow the device, not the dtype: a table rounded to bfloat16 by model.bfloat16() would be another filter.
        self._load_tables(self.window.device)
        return self

    def _load_tables(self, device: torch.device) -> None:
        window = window_function(self.options.window, self.options.window_samples)
        if self.options.int16_scale:
            window *= INT16_FULL_SCALE  # instead of the samples: a power of two, which rounds nothing
        for name, table in (("window", window), ("filters", mel_filters(self.options))):
            tensor = torch.tensor(table, dtype=torch.float32).to(device)  # there may be no float64
            self.register_buffer(name, tensor, persistent=False)


def _mel(hertz: float | np.ndarray) -> np.ndarray:
    return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)
