"""What a change of training crops is: ours, and those that other packages add through ``AUGMENTATIONS``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

Parameters = Mapping[str, Any]
"""What happens to one crop, by name: plain numbers."""


class Change(ABC):
    """A random change of training crops, drawn crop by crop and made to a batch of them.

    A change of another package is built with the fields of its settings and ``sample_rate`` as keyword arguments. One
    of the fields is its ``probability``: the share that it changes of the crops that are augmented at all.
    """

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> Parameters | None:
        """Parameters for one crop, which depend on the state of ``generator`` alone; None: the crop is left alone."""

    def load(self, parameters: Parameters, samples: int) -> Parameters:
        """Parameters as ``apply`` takes them, for a crop of so many samples: numbers, and float32 arrays, (length,).

        Only a change that takes recordings has something to do here: it decodes them, in the loader worker.

        Raises:
            UserError: a file that cannot be used.
        """
        return parameters

    @abstractmethod
    def apply(self, waveforms: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The waveforms changed; no row depends on another but by rounding.

        Args:
            waveforms: float32, (batch, samples), on any device; left as they are.
            parameters: of every row, from ``load``, on the same device: numbers as (batch,), float32 or int64; arrays
                as (batch, longest), shorter ones filled up with zeros.

        Returns:
            float32, (batch, samples).
        """

    def description(self) -> str:
        """For the log; empty where nothing is worth saying."""
        return type(self).__name__.lower()

    def fingerprint(self) -> str:
        """Changes whenever the same parameters would mean other recordings: guards a resumed run."""
        return ""
