"""The parts by name, and in which run of a few minutes each is measured; nothing heavy is imported to list them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Items = Iterator[tuple[str, Callable[[], Any]]]
"""Key and what measures it, the most wanted first; the result is written before the next one begins."""


@dataclass(frozen=True)
class Settings:
    """How a part measures.

    Attributes:
        device: a CUDA device with its number, or the CPU, where code is tried and times mean little.
        tiny: networks, crops and rounds of a test of the code.
    """

    device: torch.device
    tiny: bool = False

    @property
    def rounds(self) -> int:
        """Times that something short is timed."""
        return 1 if self.tiny else 10


class LeftOutError(Exception):
    """What is asked for cannot be measured here; its message says why."""


@dataclass(frozen=True)
class Part:
    """One question to a GPU.

    Attributes:
        run: 1, 2 or 3: parts of one run take eight minutes together.
        seconds: after so many nothing new is begun.
        question: what it answers.
        needs_cuda: nothing of it can be tried on a CPU.
    """

    run: int
    seconds: int
    question: str
    needs_cuda: bool = False


PARTS = {
    "memory": Part(1, 110, "peak of the allocator against the ledger's prediction, and what is no tensor"),
    "batches": Part(1, 140, "largest batch under caps of 11, 4 and 1 GiB", needs_cuda=True),
    "equality": Part(1, 90, "gradients of recomputing strategies bit for bit, by cuDNN's switches"),
    "offload": Part(1, 60, "memory=offload on real streams: the gradients of stored activations, whatever is late"),
    "steps": Part(2, 420, "time of a step by strategy, precision, memory layout and determinism"),
    "optimizers": Part(3, 80, "8-bit optimizers, ours and bitsandbytes: time, bytes, distance from 32 bits"),
    "loader": Part(3, 100, "crops on their way: filter bank and augmentation on the device, batches a second"),
    "extraction": Part(3, 90, "embeddings of whole recordings: seconds of audio a second"),
    "machine": Part(3, 40, "speed of matrix products, convolutions, memory and bus"),
    "replicas": Part(3, 60, "two GPUs: time of a step, speed of their reductions"),
}
"""Part name -> what it is; a module of this folder has the name, and a function ``items(settings)``."""
