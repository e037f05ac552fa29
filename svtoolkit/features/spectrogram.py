"""The mel spectrograms of other toolkits, one block each: what their released models have to be given.

A block is a row of small parts: the window, what stands around the waveform, the filters, the logarithm, and what is
done with the statistics of an utterance. These are taken over the whole of what comes in, an utterance or a crop alike,
as the originals do; so no frame depends on its own window alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from svtoolkit.features.fbank import map_frames
from svtoolkit.features.front_end import FrontEnd
from svtoolkit.features.mel_scales import htk_filters, htk_filters_in_mel, slaney_filters, speechbrain_filters

TENSORFLOW_FLOOR = 1e-8


def _hamming(samples: int, period: int) -> np.ndarray:
    return 0.54 - 0.46 * np.cos(2.0 * np.pi * np.arange(samples) / period)


def _hann(samples: int, period: int) -> np.ndarray:
    return 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(samples) / period)


def _decibels(energies: Tensor) -> Tensor:
    """10 log10, at most 80 dB below the loudest of the utterance."""
    levels = energies.clamp_min_(1e-10).log10_().mul_(10.0)
    return torch.maximum(levels, levels.amax((1, 2), keepdim=True) - 80.0)


def _log_plus_millionth(energies: Tensor) -> Tensor:
    return energies.add_(1e-6).log_()


def _log_plus_half_precision(energies: Tensor) -> Tensor:
    return energies.add_(2.0**-24).log_()


def _log_clipped(energies: Tensor) -> Tensor:
    return energies.clamp_(TENSORFLOW_FLOOR, 1.0 / TENSORFLOW_FLOOR).add_(TENSORFLOW_FLOOR).log_()


def _as_they_are(energies: Tensor) -> Tensor:
    return energies


def _nemo_deviation(centred: Tensor) -> Tensor:
    """Over time, of N - 1, and a hundred-thousandth: nemo/collections/asr/parts/preprocessing/features.py."""
    frames = torch.ones_like(centred[:1, :, :1]).sum(1, keepdim=True)  # a tensor, which a traced graph counts anew
    squares = centred.square().sum(1, keepdim=True)
    return (squares / (frames - 1).clamp(min=1)).sqrt() + 1e-5


def _instance_deviation(centred: Tensor) -> Tensor:
    """Over time, as torch.nn.InstanceNorm1d."""
    return (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()


@dataclass(frozen=True)
class Block:
    """The fixed parts of a front end.

    Attributes:
        fft_samples: points of the transform; a window is followed by zeros.
        window: its name and whether it is periodic, that is, lacks its last sample.
        filters: of ``svtoolkit.features.mel_scales``.
        scale: mel energies (batch, frames, bins) -> features before their mean is removed, in place.
        deviation: features without their mean -> what they are divided by; None: nothing.
        padding: around the waveform: "zeros" or "reflection" of half a window, so that frame t is centred at t shifts;
            "tensorflow": zeros of half a shift.
        reflected_preemphasis: what stands before the first sample is the second; otherwise nothing does.
        drops_last: the last frame that there is room for is left out.
        signal_floor: added to the standard deviation that a waveform is divided by where that is asked for.
    """

    fft_samples: int
    window: Callable[[int, int], np.ndarray]
    periodic: bool
    filters: Callable[[np.ndarray, float, float, int], np.ndarray]
    scale: Callable[[Tensor], Tensor]
    deviation: Callable[[Tensor], Tensor] | None = None
    padding: str = "zeros"
    reflected_preemphasis: bool = True
    drops_last: bool = False
    signal_floor: float = 1e-6


BLOCKS = {
    "speechbrain": Block(400, _hamming, True, speechbrain_filters, _decibels),
    "nemo": Block(
        512,
        _hann,
        False,
        slaney_filters,
        _log_plus_half_precision,
        _nemo_deviation,
        reflected_preemphasis=False,
        drops_last=True,
    ),
    "clova": Block(512, _hamming, True, htk_filters, _log_plus_millionth, _instance_deviation, "reflection"),
    "redimnet": Block(512, _hamming, True, htk_filters, _log_plus_millionth, None, "reflection"),
    "tensorflow": Block(
        512, _hamming, False, htk_filters_in_mel, _log_clipped, None, "tensorflow", signal_floor=TENSORFLOW_FLOOR
    ),
    "resemblyzer": Block(400, _hann, True, slaney_filters, _as_they_are),
}
"""By toolkit; sources: speechbrain 1.1.2 processing/features.py; nemo_toolkit 3.0.0 parts/preprocessing/features.py;
clovaai/voxceleb_trainer models/ResNetSE34V2.py; IDRnD/ReDimNet layers/features.py and features_tf.py, which is
wespeaker/frontend/tfmel.py too; Resemblyzer 0.1.4 audio.py with librosa of 0.10 or later, which pads with zeros."""


@dataclass(frozen=True)
class SpectrogramOptions:
    """Sizes of a block; its frames reach beyond the ends of the waveform.

    Attributes:
        pad_right: zeros behind every waveform, before anything else is done with it.

    Raises:
        ValueError: filters so narrow that one of them covers no point of the spectrum, a band that is none.
    """

    block: str
    sample_rate: int
    num_bins: int
    frame_length_ms: float
    frame_shift_ms: float
    preemphasis: float
    low_freq: float
    high_freq: float
    norm_signal: bool
    pad_right: int = 0

    snip_edges = False

    def __post_init__(self) -> None:
        if self.block not in BLOCKS:
            raise ValueError(f"there is no spectrogram {self.block!r}, expected one of {', '.join(BLOCKS)}")
        if not 2 <= self.window_samples <= BLOCKS[self.block].fft_samples:
            raise ValueError(
                f"features.frame_length_ms is {self.frame_length_ms:g}, expected a window of 2 to "
                f"{BLOCKS[self.block].fft_samples} samples at {self.sample_rate} Hz"
            )
        if self.num_bins < 4:
            raise ValueError(f"features.num_bins is {self.num_bins}, expected 4 filters or more")
        if self.pad_right < 0:
            raise ValueError(f"features.pad_right is {self.pad_right}, expected 0 samples or more")
        if not 0.0 <= self.preemphasis <= 1.0:
            raise ValueError(f"features.preemphasis is {self.preemphasis}, expected a factor from 0 to 1")
        if not 0.0 <= self.low_freq < self.upper_edge <= self.sample_rate / 2:
            raise ValueError(
                f"features.low_freq={self.low_freq} and features.high_freq={self.high_freq} make a band from "
                f"{self.low_freq} to {self.upper_edge} Hz, expected a band within 0 to {self.sample_rate / 2} Hz"
            )
        empty = np.flatnonzero(filter_table(self).sum(axis=0) == 0.0)
        if len(empty):
            raise ValueError(
                f"features.num_bins is {self.num_bins}, but filter {empty[0]} (counted from 0) is so narrow that it "
                f"covers no point of the {BLOCKS[self.block].fft_samples}-point spectrum; lower features.num_bins"
            )

    @property
    def window_samples(self) -> int:
        return round(self.sample_rate * self.frame_length_ms / 1000)

    @property
    def shift_samples(self) -> int:
        return round(self.sample_rate * self.frame_shift_ms / 1000)

    @property
    def upper_edge(self) -> float:
        """Upper edge of the last filter, Hz."""
        return self.high_freq if self.high_freq > 0.0 else self.sample_rate / 2 + self.high_freq

    @property
    def padding(self) -> int:
        """Samples before the waveform, and after it."""
        return (self.shift_samples if BLOCKS[self.block].padding == "tensorflow" else self.window_samples) // 2

    def num_frames(self, samples: int) -> int:
        """Frames of so many samples; 0 if they fill no window."""
        samples += self.pad_right
        if samples < max(self.window_samples, self.pad_right + 1):
            return 0
        room = 1 + (samples + 2 * self.padding - self.window_samples) // self.shift_samples
        return room - BLOCKS[self.block].drops_last

    def num_samples(self, frames: int) -> int:
        """Fewest samples that give so many frames, or more where these do not fill a window.

        Raises:
            ValueError: fewer than one frame.
        """
        if frames < 1:
            raise ValueError(f"{frames} frames have no length in samples, expected 1 frame or more")
        shifts = frames - 1 + BLOCKS[self.block].drops_last
        samples = max(self.window_samples, shifts * self.shift_samples + self.window_samples - 2 * self.padding)
        return max(1, samples - self.pad_right)


def filter_table(options: SpectrogramOptions) -> np.ndarray:
    """float64, (fft_samples / 2 + 1, num_bins)."""
    block, nyquist = BLOCKS[options.block], options.sample_rate / 2
    points = block.fft_samples // 2
    if block.padding == "tensorflow":
        # Its last point is meant to be at the Nyquist frequency, which the transform leaves out.
        table = block.filters(np.linspace(0.0, nyquist, points), options.low_freq, options.upper_edge, options.num_bins)
        return np.vstack([table, np.zeros((1, options.num_bins))])
    points_at = np.linspace(0.0, nyquist, points + 1)
    return block.filters(points_at, options.low_freq, options.upper_edge, options.num_bins)


class Spectrogram(nn.Module):
    """Waveforms -> features of a block, before their mean is removed and they are divided by their deviation.

    The tables stay float32 whatever dtype a model around them is cast to.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, options: SpectrogramOptions) -> None:
        super().__init__()
        self.options = options
        self.block = BLOCKS[options.block]
        self._load_tables(torch.device("cpu"))

    def forward(self, waveforms: Tensor) -> Tensor:
        """float32 (batch, samples) in [-1, 1], a window or longer -> float32 (batch, frames, bins)."""
        options = self.options
        num_frames = options.num_frames(waveforms.shape[1])
        frames = self.padded(waveforms).unfold(1, options.window_samples, options.shift_samples)[:, :num_frames]
        return self.block.scale(map_frames(self._mel_energies, frames))

    def padded(self, waveforms: Tensor) -> Tensor:
        """The waveforms that windows are cut from: scaled and emphasised, with what stands around them."""
        options, around = self.options, self.options.padding
        waveforms = functional.pad(waveforms, (0, options.pad_right))
        if options.norm_signal:
            deviation = waveforms.std(1, keepdim=True, correction=0) + self.block.signal_floor
            waveforms = (waveforms - waveforms.mean(1, keepdim=True)) / deviation
        if options.preemphasis:
            waveforms = self._emphasise(waveforms)
        mode = "reflect" if self.block.padding == "reflection" else "constant"
        return functional.pad(waveforms, (around, around), mode)

    def _emphasise(self, waveforms: Tensor) -> Tensor:
        before = waveforms[:, 1:2] if self.block.reflected_preemphasis else torch.zeros_like(waveforms[:, :1])
        return waveforms - self.options.preemphasis * torch.cat((before, waveforms[:, :-1]), dim=1)

    def _mel_energies(self, frames: Tensor) -> Tensor:
        """(batch, frames, window) -> (batch, frames, bins)."""
        spectrum = torch.fft.rfft(frames * self.window, n=self.block.fft_samples)
        squares = torch.view_as_real(spectrum).square_()
        power = squares[..., 0] + squares[..., 1]
        if self.block.padding == "tensorflow":
            power.clamp_(TENSORFLOW_FLOOR, 1.0 / TENSORFLOW_FLOOR)
        return power @ self.filters

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Spectrogram:
        super()._apply(fn, recurse)
        self._load_tables(self.window.device)  # they follow the device, not the dtype
        return self

    def _load_tables(self, device: torch.device) -> None:
        samples = self.options.window_samples
        window = self.block.window(samples, samples if self.block.periodic else samples - 1)
        for name, table in (("window", window), ("filters", filter_table(self.options))):
            tensor = torch.tensor(table, dtype=torch.float32).to(device)  # there may be no float64
            self.register_buffer(name, tensor, persistent=False)


def build_spectrogram(*, block: str, remove_mean: bool, norm_signal: bool = False, **settings: Any) -> FrontEnd:
    """The front end of a block.

    Args:
        block: one of ``BLOCKS``.
        remove_mean: subtract the mean over the frames of each utterance or crop.
        norm_signal: first make the waveform one of mean 0 and standard deviation 1.
        settings: of ``FeaturesConfig``; those that a block has no choice in, window and int16_scale, are not used.

    Raises:
        ValueError: a value out of range.
    """
    sizes = {key: value for key, value in settings.items() if key not in ("window", "int16_scale")}
    options = SpectrogramOptions(block=block, norm_signal=norm_signal, **sizes)
    return FrontEnd(options, Spectrogram(options), remove_mean=remove_mean, deviation=BLOCKS[block].deviation)
