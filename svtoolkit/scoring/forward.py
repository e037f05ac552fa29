"""Waveforms or stored frames through front end and network in the memory there is: smaller batches, then stretches."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from svtoolkit.device import autocast, empty_cache, is_out_of_memory
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.models.stretches import TimeGeometry, embed_in_stretches, time_geometry

log = logging.getLogger(__name__)

LEAST_SECONDS = 1.0
"""Of audio that has to fit into the memory beside its context."""


@dataclass(eq=False)
class BoundedForward:
    """A network in eval mode, and how many seconds of audio it takes at once.

    Attributes:
        seconds: limit of a batch, and of a stretch of one recording; lowered for good where memory runs out.
    """

    network: torch.nn.Module
    front_end: FrontEnd
    device: torch.device
    precision: str
    seconds: float

    @torch.inference_mode()
    def __call__(self, signals: list[np.ndarray]) -> np.ndarray:
        """Waveforms (samples,) or frames (frames, bins), of equally many frames -> (batch, embedding_dim) float32.

        Raises:
            UserError: not even one of them fits into the memory of the device.
        """
        frames = self.num_frames(signals[0])
        samples = self.front_end.num_samples(frames)
        if signals[0].ndim == 1 and self.front_end.snip_edges:
            signals = [signal[:samples] for signal in signals]
        together = max(1, int(self.seconds * self.front_end.sample_rate / samples + 1e-6))
        rows, begin = [], 0
        while begin < len(signals):
            batch = signals[begin : begin + together]
            found = self._try(batch)
            if found is None:
                together = self._reduce(len(batch), samples)
                continue
            rows.append(found)
            begin += len(batch)
        return np.concatenate(rows)

    def num_frames(self, signal: np.ndarray) -> int:
        """Of a waveform, or as they are stored."""
        return self.front_end.num_frames(len(signal)) if signal.ndim == 1 else len(signal)

    def num_samples(self, signal: np.ndarray) -> int:
        """Of a waveform, or that stored frames span."""
        return len(signal) if signal.ndim == 1 else self.front_end.num_samples(len(signal))

    def _try(self, batch: list[np.ndarray]) -> np.ndarray | None:
        """Embeddings of signals of equally many frames; None where memory runs out."""
        try:
            features = self._features(batch)
            with autocast(self.device, self.precision):
                embeddings = self._embed(features)
            return embeddings.float().cpu().numpy()
        except RuntimeError as error:  # what it holds has to go before the memory is free again
            if not is_out_of_memory(error):
                raise
        empty_cache(self.device)
        return None

    def _features(self, batch: list[np.ndarray]) -> Tensor:
        """(batch, frames, bins), of each as it is: as many frames may be of a few samples more or less."""
        equal = len({len(signal) for signal in batch}) == 1
        together = [np.stack(batch)] if equal else [signal[np.newaxis] for signal in batch]
        return torch.cat([self.front_end.features_of(torch.from_numpy(part).to(self.device)) for part in together])

    def _embed(self, features: Tensor) -> Tensor:
        stretch = self.front_end.num_frames(round(self.seconds * self.front_end.sample_rate))
        if features.shape[1] <= stretch or self.geometry is None:
            return self.network(features)
        # Only a PooledNetwork has a geometry.
        return embed_in_stretches(self.network, features, self.geometry, stretch)  # type: ignore[arg-type]

    @cached_property
    def geometry(self) -> TimeGeometry | None:
        """How stretches fit together; None where the network takes nothing but the whole."""
        return time_geometry(self.network, self.front_end.num_bins)

    def _reduce(self, tried: int, samples: int) -> int:
        """Utterances to try after so many did not fit."""
        seconds = samples / self.front_end.sample_rate
        if tried > 1:
            self.seconds = tried // 2 * seconds
            log.warning(
                "%d utterances of %.1f s do not fit into the memory of %s: continuing with %g s of audio at once",
                tried, seconds, self.device, round(self.seconds, 1),
            )  # fmt: skip
            return tried // 2
        remedy = "end other programs that use it, choose a lower precision such as bf16, or compute on the CPU"
        if self.geometry is None:
            raise UserError(
                f"one utterance of {seconds:.1f} s does not fit into the memory of {self.device}, and this network "
                f"cannot take it in stretches (it is no chain of convolutions with statistics pooling); {remedy}"
            )
        self.seconds = min(self.seconds, seconds) / 2
        if self.seconds < LEAST_SECONDS:
            raise UserError(
                f"not even {2 * self.seconds:.1f} s of audio fit into the memory of {self.device}; {remedy}"
            )
        log.warning(
            "one utterance of %.1f s does not fit into the memory of %s: continuing in stretches of %.1f s",
            seconds, self.device, self.seconds,
        )  # fmt: skip
        return 1
