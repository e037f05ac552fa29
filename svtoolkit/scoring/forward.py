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
from svtoolkit.models.ge2e import Partials
from svtoolkit.models.padded import embed_padded, takes_padding
from svtoolkit.models.stretches import TimeGeometry, embed_in_stretches, time_geometry
from svtoolkit.scoring.pass_memory import PassMemory, in_all, show_bytes

log = logging.getLogger(__name__)

LEAST_SECONDS = 1.0
"""Of audio that has to fit into the memory beside its context."""
TOO_LONG = "cut it into segments, raise memory_gib, or choose a device with more memory"
NO_STRETCHES = "it is no chain of convolutions with statistics pooling"


class TooLongError(UserError):
    """One recording that memory does not hold; shorter ones may go well."""


@dataclass(eq=False)
class BoundedForward:
    """A network in eval mode, and how many seconds of audio it takes at once.

    Attributes:
        seconds: limit of a batch, and of a stretch of one recording; lowered for good where memory runs out.
        room: bytes that tensors may take at once, weights among them; None: as many as there are.
        memory: what a pass takes of them; None: unknown, and ``room`` is, too.
    """

    network: torch.nn.Module
    front_end: FrontEnd
    device: torch.device
    precision: str
    seconds: float
    room: float | None = None
    memory: PassMemory | None = None

    @torch.inference_mode()
    def __call__(self, signals: list[np.ndarray]) -> np.ndarray:
        """Waveforms (samples,) or frames (frames, bins) -> (batch, embedding_dim) float32.

        Unless ``pads``, they are of equally many frames.

        Raises:
            TooLongError: not even one of them fits into the memory of the device.
            UserError: nothing does.
        """
        samples = self.front_end.num_samples(max(map(self.num_frames, signals)))
        if signals[0].ndim == 1 and self.front_end.snip_edges:
            signals = [signal[: self.front_end.num_samples(self.num_frames(signal))] for signal in signals]
        self._refuse_too_long(samples)
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
        """Embeddings of signals; None where memory runs out."""
        try:
            if self.partials is not None and batch[0].ndim == 1:
                embeddings = torch.stack([self._embed_partials(signal, self.partials) for signal in batch])
            else:
                parts = self._features(batch)
                with autocast(self.device, self.precision):
                    if len({part.shape[1] for part in parts}) == 1:
                        embeddings = self._embed(torch.cat(parts))
                    else:
                        embeddings = embed_padded(self.network, [row for part in parts for row in part])
            return embeddings.float().cpu().numpy()
        except (RuntimeError, MemoryError) as error:  # what it holds has to go before the memory is free again
            if not is_out_of_memory(error):
                raise
        empty_cache(self.device)
        return None

    def _features(self, batch: list[np.ndarray]) -> list[Tensor]:
        """(utterances, frames, bins) each: those of equally many samples are one part."""
        equal = len({len(signal) for signal in batch}) == 1
        together = [np.stack(batch)] if equal else [signal[np.newaxis] for signal in batch]
        return [self.front_end.features_of(torch.from_numpy(part).to(self.device)) for part in together]

    def _embed_partials(self, signal: np.ndarray, partials: Partials) -> Tensor:
        """(samples,) -> (embedding_dim,): the mean of its stretches, of length 1; the last one is filled with zeros."""
        shift = self.front_end.num_samples(1001) - self.front_end.num_samples(1000)
        starts = partials.starts(len(signal), shift)
        missing = max(0, (starts[-1] + partials.frames) * shift - len(signal))
        features = self._features([np.pad(signal, (0, missing))])[0][0]
        stretches = torch.stack([features[start : start + partials.frames] for start in starts])
        together = max(1, int(self.seconds * self.front_end.sample_rate / (partials.frames * shift)))
        with autocast(self.device, self.precision):
            mean = torch.cat([self.network(part).float() for part in stretches.split(together)]).mean(0)
        return mean / mean.norm()

    def _embed(self, features: Tensor) -> Tensor:
        stretch = self._frames(self.seconds)
        if features.shape[1] <= stretch or self.geometry is None:
            return self.network(features)
        if self.memory is not None and self.room is not None:
            seconds = self.front_end.num_samples(features.shape[1]) / self.front_end.sample_rate
            whole = features.nbytes + 4 * self.front_end.sample_rate * seconds  # which are there, stretch after stretch
            fits = self._frames(self.memory.seconds_within(self.room - whole)) - 2 * self.geometry.context
            if fits < self._frames(LEAST_SECONDS):
                raise TooLongError(
                    f"one utterance of {seconds:.1f} s does not fit into the {show_bytes(in_all(self.room))} that may "
                    f"be used, not even in stretches; {TOO_LONG}"
                )
            stretch = min(stretch, fits)
        # Only a PooledNetwork has a geometry.
        return embed_in_stretches(self.network, features, self.geometry, stretch)  # type: ignore[arg-type]

    def _frames(self, seconds: float) -> int:
        return self.front_end.num_frames(round(seconds * self.front_end.sample_rate))

    def _refuse_too_long(self, samples: int) -> None:
        """One that is predicted not to fit is not tried: on a CPU the system might end the process."""
        seconds = samples / self.front_end.sample_rate
        if self.memory is None or self.room is None or seconds <= self.seconds or self.partials is not None:
            return
        needed = self.memory.of(seconds)
        if needed > self.room and self.geometry is None:
            raise TooLongError(
                f"one utterance of {seconds:.1f} s is predicted to need {show_bytes(in_all(needed))}, of "
                f"{show_bytes(in_all(self.room))} that may be used, and this network cannot take it in stretches "
                f"({NO_STRETCHES}); {TOO_LONG}"
            )

    @property
    def partials(self) -> Partials | None:
        """The stretches that an utterance is embedded by, of a network that says so."""
        return getattr(self.network, "partials", None)

    @cached_property
    def pads(self) -> bool:
        """Whether utterances of unequal length go together."""
        return self.partials is None and takes_padding(self.network, self.front_end.num_bins)

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
            needed = "" if self.memory is None else f" (predicted: {show_bytes(in_all(self.memory.of(seconds)))})"
            raise TooLongError(
                f"one utterance of {seconds:.1f} s does not fit into the memory of {self.device}{needed}, and this "
                f"network cannot take it in stretches ({NO_STRETCHES}); cut it into segments, {remedy}"
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
