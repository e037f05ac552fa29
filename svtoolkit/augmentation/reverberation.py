"""Reverberation: speech sent through a room impulse response."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from svtoolkit.augmentation.change import Change, Parameters
from svtoolkit.augmentation.convolution import convolve
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.level import SILENCE, level


class Reverberation(Change):
    """Impulse responses, drawn uniformly.

    Args:
        library: what there is to draw from.
        sample_rate: of the crops, in Hz.
    """

    def __init__(self, library: ImpulseLibrary, sample_rate: int) -> None:
        self.library = library
        self.sample_rate = sample_rate

    def draw(self, generator: np.random.Generator) -> Parameters:
        return {"response": int(generator.integers(len(self.library)))}

    def load(self, parameters: Parameters, samples: int) -> Parameters:
        return {"response": self.library.response(parameters["response"], self.sample_rate)}

    def apply(self, waveforms: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return reverberate(waveforms, parameters["response"])

    def description(self) -> str:
        return f"reverberation ({len(self.library)} responses)"

    def fingerprint(self) -> str:
        return self.library.fingerprint()


def reverberate(waveforms: Tensor, responses: Tensor) -> Tensor:
    """Speech convolved with a response, at the power that it had, and undelayed: the first tap is the direct path.

    Args:
        waveforms: float32, (batch, samples).
        responses: float32, (batch, taps), from ``normalise_response``; shorter ones filled up with zeros.

    Returns:
        float32, (batch, samples): what rings on after the last sample is cut off.
    """
    reverberant = convolve(waveforms, responses)
    dry, wet = level(waveforms), level(reverberant)
    return reverberant * torch.where(wet > SILENCE, dry / wet, 1.0)
