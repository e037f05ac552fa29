"""Running means of gradients, one chunk at a time: stored in eight bits a value, or in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from svtoolkit.optim.chunks import Chunk, Gathered
from svtoolkit.optim.dynamic_map import dequantise, quantise, zero_code


@dataclass(frozen=True)
class Moment:
    """A running mean that an optimizer keeps of every parameter: its name in the state, whether it has a sign."""

    name: str
    signed: bool

    def layout(self, length: int, block_size: int | None) -> dict[str, tuple[int, torch.dtype]]:
        """Entries in the state of a parameter of ``length`` values -> length and type; no block size: in float32."""
        if block_size is None:
            return {self.name: (length, torch.float32)}
        return {
            f"{self.name}_codes": (length, torch.uint8),
            f"{self.name}_absmax": (-(-length // block_size), torch.float32),
        }

    def empty(self, length: int, block_size: int | None, device: torch.device) -> dict[str, Tensor]:
        """What the state of a parameter begins with: a mean of 0."""
        entries = {
            key: torch.zeros(size, dtype=dtype, device=device)
            for key, (size, dtype) in self.layout(length, block_size).items()
        }
        if block_size is not None:
            entries[f"{self.name}_codes"].fill_(zero_code(self.signed))
        return entries


class EightBitMoment:
    """The moment of a chunk, from codes and largest magnitudes: ``values`` (n,), float32, are changed, then stored."""

    def __init__(self, moment: Moment, chunk: Chunk, states: Sequence[Mapping[str, Any]], block_size: int) -> None:
        self.signed, self.block_size = moment.signed, block_size
        codes = [state[f"{moment.name}_codes"] for state in states]
        absmax = [state[f"{moment.name}_absmax"] for state in states]
        self.codes = Gathered(chunk.values, codes, torch.uint8, padding=zero_code(moment.signed))
        self.absmax = Gathered(chunk.blocks, absmax, torch.float32)
        self.values = dequantise(self.codes.flat, self.absmax.flat, block_size, signed=moment.signed)

    def store(self) -> None:
        codes, absmax = quantise(self.values, self.block_size, signed=self.signed)
        self.codes.flat.copy_(codes)
        self.absmax.flat.copy_(absmax)
        self.codes.scatter()
        self.absmax.scatter()


class FloatMoment:
    """The same of a moment that is kept in float32."""

    def __init__(self, moment: Moment, chunk: Chunk, states: Sequence[Mapping[str, Any]]) -> None:
        self.gathered = Gathered(chunk.values, [state[moment.name] for state in states], torch.float32)
        self.values = self.gathered.flat

    def store(self) -> None:
        self.gathered.scatter()


def load_moment(
    moment: Moment, chunk: Chunk, states: Sequence[Mapping[str, Any]], block_size: int | None
) -> EightBitMoment | FloatMoment:
    """The moment of a chunk of parameters whose states these are."""
    if block_size is None:
        return FloatMoment(moment, chunk, states)
    return EightBitMoment(moment, chunk, states, block_size)
