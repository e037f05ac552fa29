"""The front end of networks that hear the waveform itself: every sample is a frame of one bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.features.front_end import FrontEnd


@dataclass(frozen=True)
class WaveformOptions:
    """Sizes of a waveform.

    Args:
        frame_length_ms: fewest milliseconds that the network can embed.

    Raises:
        ValueError: no sample is left of that.
    """

    sample_rate: int
    frame_length_ms: float

    snip_edges = False
    num_bins = 1

    def __post_init__(self) -> None:
        if self.sample_rate < 1 or self.window_samples < 1:
            raise ValueError(
                f"features.frame_length_ms={self.frame_length_ms} at features.sample_rate={self.sample_rate} are "
                f"{self.window_samples} samples, expected 1 or more"
            )

    @property
    def window_samples(self) -> int:
        return round(self.sample_rate * self.frame_length_ms / 1000)

    def num_frames(self, samples: int) -> int:
        """As many, or 0 of a waveform that is too short."""
        return samples if samples >= self.window_samples else 0

    def num_samples(self, frames: int) -> int:
        """As many, or as there have to be.

        Raises:
            ValueError: fewer than one frame.
        """
        if frames < 1:
            raise ValueError(f"{frames} frames have no length in samples, expected 1 frame or more")
        return max(frames, self.window_samples)


class Samples(nn.Module):
    """(batch, samples) -> (batch, samples, 1), a copy."""

    def forward(self, waveforms: Tensor) -> Tensor:
        return waveforms.unsqueeze(2).clone()


def _deviation(centred: Tensor) -> Tensor:
    """As transformers' Wav2Vec2FeatureExtractor.zero_mean_unit_var_norm."""
    return torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-7)


def build_waveform(
    *, sample_rate: int, frame_length_ms: float, norm_signal: bool, crop_frame_ms: float, **_fixed: Any
) -> FrontEnd:
    """The front end.

    Args:
        sample_rate: Hz.
        frame_length_ms: fewest milliseconds that the network can embed.
        norm_signal: make the waveform one of mean 0 and variance 1.
        crop_frame_ms: length of a frame that crops are counted in.
        _fixed: the other keys of ``FeaturesConfig``, in which there is no choice.

    Raises:
        ValueError: a length of no samples.
    """
    return FrontEnd(
        WaveformOptions(sample_rate, frame_length_ms),
        Samples(),
        remove_mean=norm_signal,
        deviation=_deviation if norm_signal else None,
        crop_frame_ms=crop_frame_ms,
    )
