"""Gain: another level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from svtoolkit.augmentation.change import Change, Parameters
from svtoolkit.augmentation.draws import uniform
from svtoolkit.augmentation.level import amplitude


class Gain(Change):
    """A change of level, drawn uniformly.

    Args:
        limits: lowest and highest gain, in dB.
    """

    def __init__(self, limits: Sequence[float]) -> None:
        self.limits = limits

    def draw(self, generator: np.random.Generator) -> Parameters | None:
        gain_db = uniform(generator, self.limits)
        return {"gain_db": gain_db} if gain_db else None

    def apply(self, waveforms: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return waveforms * amplitude(parameters["gain_db"])

    def description(self) -> str:
        return "gain" if any(self.limits) else ""
