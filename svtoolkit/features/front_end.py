"""The front end of every network: waveforms in, mean-normalised log-mel features out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from svtoolkit.features.fbank import FilterBank
from svtoolkit.features.kaldi_filters import FilterBankOptions
from svtoolkit.features.torchaudio_backend import TorchaudioFilterBank

BACKENDS: dict[str, type[FilterBank] | type[TorchaudioFilterBank]] = {
    "torch": FilterBank,
    "torchaudio": TorchaudioFilterBank,
}


class FrameSizes(Protocol):
    """What a front end has to know of its frames.

    Attributes:
        snip_edges: frames lie wholly within the waveform, so that samples after the last one change nothing.
    """

    @property
    def snip_edges(self) -> bool: ...
    @property
    def sample_rate(self) -> int: ...
    @property
    def num_bins(self) -> int: ...
    @property
    def frame_length_ms(self) -> float: ...
    @property
    def window_samples(self) -> int: ...
    def num_frames(self, samples: int) -> int: ...
    def num_samples(self, frames: int) -> int: ...


class FrontEnd(nn.Module):
    """A filter bank, always in float32, and the removal of the mean over time.

    It has no parameters and no state to store: its options are part of a model's released form.

    Args:
        options: sizes of window, shift and frame.
        filter_bank: waveforms (batch, samples) -> (batch, frames, bins).
        remove_mean: subtract the mean over the frames of each utterance or crop.
        framewise: each frame that ``filter_bank`` makes depends on the samples of its window alone, so that the frames
            of whole utterances may be stored, and cut.
        deviation: what features without their mean are divided by, of the same utterance or crop; None: nothing.
        warped: filter banks of other vocal tracts, which the crops of ``features_of`` may choose from by number.
        crop_frame_ms: length of a frame that crops are counted in, milliseconds; None: that of its own frames.
    """

    def __init__(
        self,
        options: FrameSizes,
        filter_bank: nn.Module,
        *,
        remove_mean: bool,
        framewise: bool = False,
        deviation: Callable[[Tensor], Tensor] | None = None,
        warped: Sequence[nn.Module] = (),
        crop_frame_ms: float | None = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.filter_bank = filter_bank
        self.remove_mean = remove_mean
        self.framewise = framewise
        self.deviation = deviation
        self.warped = nn.ModuleList(warped)
        self.crop_frame_ms = crop_frame_ms

    @property
    def sample_rate(self) -> int:
        """Hz."""
        return self.options.sample_rate

    @property
    def num_bins(self) -> int:
        return self.options.num_bins

    @property
    def snip_edges(self) -> bool:
        """Whether samples that fill no further frame change nothing, and may be cut off."""
        return self.options.snip_edges

    def num_frames(self, samples: int) -> int:
        """Frames made of so many samples; 0 if they are fewer than one window, which ``forward`` refuses."""
        return self.options.num_frames(samples)

    def num_samples(self, frames: int) -> int:
        """Fewest samples that give so many frames: 200 frames of 25/10 ms at 16 kHz are 32240 samples."""
        return self.options.num_samples(frames)

    def crop_size(self, frames: int) -> tuple[int, int]:
        """Samples of a crop that is so many frames long, and the frames that are made of them."""
        if self.crop_frame_ms is None:
            return self.num_samples(frames), frames
        samples = self.num_samples(round(frames * self.crop_frame_ms * self.sample_rate / 1000))
        return samples, self.num_frames(samples)

    def forward(self, waveforms: Tensor) -> Tensor:
        """Compute the features of utterances or crops of equal length.

        The same input gives the same output in training and in evaluation.

        Args:
            waveforms: (batch, samples) in [-1, 1], of a floating-point type.

        Returns:
            float32, (batch, frames, bins), inside autocast too.

        Raises:
            ValueError: another shape, integer samples, or fewer samples than one window.
        """
        return self.normalise_(self.frames(waveforms))

    def frames(self, waveforms: Tensor, warps: Tensor | None = None) -> Tensor:
        """The same before the mean is removed: what is stored of whole utterances.

        Args:
            warps: of each waveform, the number of its filter bank in ``warped``, int64, (batch,); None: no warp.

        Raises: as ``forward``.
        """
        if waveforms.ndim != 2 or not len(waveforms) or not waveforms.is_floating_point():
            raise ValueError(
                f"waveforms are {waveforms.dtype} of shape {tuple(waveforms.shape)}, "
                "expected floating-point samples in [-1, 1] of shape (batch, samples)"
            )
        if self.num_frames(waveforms.shape[1]) < 1:
            raise ValueError(
                f"waveforms of {waveforms.shape[1]} samples are shorter than one window of "
                f"{self.options.window_samples} samples ({self.options.frame_length_ms:g} ms at {self.sample_rate} Hz)"
            )
        with torch.autocast(waveforms.device.type, enabled=False):
            waveforms = waveforms.float()
            frames: Tensor = self.filter_bank(waveforms) if warps is None else self._warped_frames(waveforms, warps)
            return frames

    def _warped_frames(self, waveforms: Tensor, warps: Tensor) -> Tensor:
        """Of the crops of each vocal tract together, in the order of the crops."""
        order = warps.argsort(stable=True)
        parts = waveforms[order].split(warps.bincount(minlength=len(self.warped)).tolist())
        frames = [bank(part) for bank, part in zip(self.warped, parts, strict=True) if len(part)]
        return torch.cat(frames)[order.argsort()]

    def normalise_(self, frames: Tensor) -> Tensor:
        """What ``forward`` makes of frames, which may change: float32, (batch, frames, bins)."""
        if self.remove_mean:
            frames = frames.sub_(frames.mean(dim=1, keepdim=True))
        return frames if self.deviation is None else frames / self.deviation(frames)

    def features_of(self, signals: Tensor, warps: Tensor | None = None) -> Tensor:
        """Of waveforms, (batch, samples), or of frames that were stored, (batch, frames, bins), which change.

        Args:
            warps: of waveforms, as for ``frames``.
        """
        if warps is not None:
            return self.normalise_(self.frames(signals, warps))
        features: Tensor = self(signals) if signals.ndim == 2 else self.normalise_(signals)
        return features


def build_front_end(
    *, backend: str = "torch", remove_mean: bool = True, warps: Sequence[float] = (), **options: Any
) -> FrontEnd:
    """Build the front end; the defaults are those of WeSpeaker's VoxCeleb recipes.

    Args:
        backend: ``torch``, or ``torchaudio`` where it can be imported.
        remove_mean: subtract the mean over the frames of each utterance or crop.
        warps: of the vocal tracts that crops may have; see ``FrontEnd.features_of``.
        options: of ``FilterBankOptions``.

    Raises:
        ValueError: an unknown backend or window, a value out of range.
        ImportError: torchaudio was asked for and cannot be imported.
    """
    if backend not in BACKENDS:
        raise ValueError(f"features.backend is {backend!r}, expected one of {', '.join(BACKENDS)}")
    made_of, bank = FilterBankOptions(**options), BACKENDS[backend]
    warped = [bank(replace(made_of, warp=float(warp))) for warp in warps]
    return FrontEnd(made_of, bank(made_of), remove_mean=remove_mean, framewise=True, warped=warped)
