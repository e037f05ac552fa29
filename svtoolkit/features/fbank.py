"""Log-mel filter bank that equals Kaldi's ``compute-fbank-feats``, written in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from svtoolkit.features.kaldi_filters import (
    INT16_FULL_SCALE,
    LOG_FLOOR,
    FilterBankOptions,
    mel_filters,
    window_function,
)

# Frames that are worked on at once. On a CPU what is made of 640 frames a thread stays in the cache of a core: 128
# crops of 2 s take about a tenth less time than with 2048. Elsewhere the limit bounds the memory, to less than 100 MB.
CPU_CHUNK_FRAMES_PER_THREAD = 640
DEVICE_CHUNK_FRAMES = 8192


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
