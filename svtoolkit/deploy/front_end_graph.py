"""Front ends as an ONNX graph can hold them: frames and their Fourier transform are one convolution.

All that is done to a frame before its power spectrum is linear: the mean is subtracted, the frame emphasised, windowed
and transformed. One matrix does it, and a convolution with its rows and the step between frames as stride applies it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from svtoolkit.errors import UserError
from svtoolkit.features.fbank import FilterBank
from svtoolkit.features.front_end import FrontEnd
from svtoolkit.features.kaldi_filters import INT16_FULL_SCALE, LOG_FLOOR, mel_filters, window_function
from svtoolkit.features.spectrogram import TENSORFLOW_FLOOR, Spectrogram
from svtoolkit.features.torchaudio_backend import TorchaudioFilterBank
from svtoolkit.features.waveform import Samples


class MelEnergies(nn.Module):
    """(batch, samples) -> mel energies, (batch, frames, bins).

    Args:
        linear: what is done to a frame before its transform, float64, (window, window).
        fft_samples: points of the transform; a window is followed by zeros.
        shift: samples from frame to frame.
        filters: float64, (fft_samples / 2 + 1, bins).
        floor, ceiling: of the power spectrum; None: it is left as it is.
    """

    kernels: Tensor
    filters: Tensor

    def __init__(
        self,
        linear: np.ndarray,
        fft_samples: int,
        shift: int,
        filters: np.ndarray,
        limits: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        transform = np.exp(-2j * np.pi * np.outer(np.arange(len(filters)), np.arange(len(linear))) / fft_samples)
        rows = transform @ linear
        kernels = np.concatenate([rows.real, rows.imag])[:, np.newaxis]
        self.shift, self.limits = shift, limits
        self.register_buffer("kernels", torch.from_numpy(kernels.astype(np.float32)), persistent=False)
        self.register_buffer("filters", torch.from_numpy(filters.astype(np.float32)), persistent=False)

    def forward(self, waveforms: Tensor) -> Tensor:
        spectrum = functional.conv1d(waveforms.unsqueeze(1), self.kernels, stride=self.shift)
        real, imaginary = spectrum.split(len(self.filters), 1)
        power = real * real + imaginary * imaginary
        if self.limits is not None:
            power = power.clamp(*self.limits)
        return power.transpose(1, 2) @ self.filters


class KaldiGraph(nn.Module):
    """``svtoolkit.features.FilterBank``."""

    def __init__(self, bank: FilterBank | TorchaudioFilterBank) -> None:
        super().__init__()
        options = bank.options
        size = options.window_samples
        centre = np.eye(size) - 1.0 / size
        before = np.eye(size, k=-1)
        before[0, 0] = 1.0  # the first sample stands for the one before it
        window = window_function(options.window, size) * (INT16_FULL_SCALE if options.int16_scale else 1.0)
        linear = window[:, np.newaxis] * ((np.eye(size) - options.preemphasis * before) @ centre)
        self.energies = MelEnergies(linear, options.fft_samples, options.shift_samples, mel_filters(options))

    def forward(self, waveforms: Tensor) -> Tensor:
        return self.energies(waveforms).clamp(min=LOG_FLOOR).log()


class SpectrogramGraph(nn.Module):
    """``svtoolkit.features.spectrogram.Spectrogram``, whose steps before and after the transform it takes."""

    def __init__(self, spectrogram: Spectrogram) -> None:
        super().__init__()
        self.original = spectrogram
        options, block = spectrogram.options, spectrogram.block
        limits = (TENSORFLOW_FLOOR, 1.0 / TENSORFLOW_FLOOR) if block.padding == "tensorflow" else None
        window = np.diag(spectrogram.window.double().numpy())
        filters = spectrogram.filters.double().numpy()
        self.energies = MelEnergies(window, block.fft_samples, options.shift_samples, filters, limits)

    def forward(self, waveforms: Tensor) -> Tensor:
        energies = self.energies(self.original.padded(waveforms))
        if self.original.block.drops_last:
            energies = energies[:, :-1]
        return self.original.block.scale(energies)


class SamplesGraph(nn.Module):
    """``svtoolkit.features.waveform.Samples``."""

    def forward(self, waveforms: Tensor) -> Tensor:
        return waveforms.unsqueeze(2)


class Normalised(nn.Module):
    """What a front end does to the frames of an utterance before a network sees them: its mean, its deviation."""

    def __init__(self, front_end: FrontEnd) -> None:
        super().__init__()
        self.remove_mean, self.deviation = front_end.remove_mean, front_end.deviation

    def forward(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> the same shape."""
        if self.remove_mean:
            frames = frames - frames.mean(dim=1, keepdim=True)
        return frames if self.deviation is None else frames / self.deviation(frames)


def filter_bank_graph(front_end: FrontEnd) -> nn.Module:
    """(batch, samples) -> (batch, frames, bins), before the mean is removed, of operations that ONNX has.

    Raises:
        UserError: a front end of a package of the user's own.
    """
    bank = front_end.filter_bank
    if isinstance(bank, FilterBank | TorchaudioFilterBank):
        return KaldiGraph(bank)
    if isinstance(bank, Spectrogram):
        return SpectrogramGraph(bank)
    if isinstance(bank, Samples):
        return SamplesGraph()
    raise UserError(
        f"the front end {type(bank).__name__} has no form as a graph; export with input=features, and compute the "
        "features outside"
    )
