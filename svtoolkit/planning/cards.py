"""GPUs that people own or rent, and how long work takes on one: the roofline of each operation, added up.

Figures are of the makers: Turing whitepaper (2018), table 1; GA102 whitepaper v2.1 (2021), appendix A, and the product
pages of GeForce RTX 30 and GTX 750; Ada whitepaper v1.1 (2022), appendix A; datasheets of A100 (2021, SXM, 40 GB), H100
(2023, SXM) and H200 (2024, SXM). Rates are dense, with sums in float32, as cuDNN computes them: on GeForce half of what
is printed largest. Convolutions in float32 are computed in TF32 from Ampere on, which is torch's default; products of
matrices are not. Turing and older have no convolutions in bf16, Maxwell none that are faster in fp16.

Memory is what torch calls the total, which its messages of memory that ran out print. The context is what a process
takes there before its first tensor, with cuBLAS and cuDNN loaded: it grows with the number of multiprocessors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from svtoolkit.errors import UserError
from svtoolkit.memory.operations import Work

GIB = 2**30

SUSTAINED = {"convolution 32": 0.6, "product 32": 0.6, "convolution 16": 0.3, "product 16": 0.5, "bytes": 0.75}
"""Share of the rate in a datasheet that these networks reach, by assumption: maps of 32 to 256 channels leave tensor
cores idle."""

ALLOCATOR_SLACK = 0.07
"""Bytes that the caching allocator holds beside those of tensors, for each of theirs. With the context and a workspace
it gives at most the largest batches that Liu & Qian found on 11 GB (table V): 154 of ResNet34, 31 of ResNet101, 22 of
ResNet152."""

LARGEST_WORKSPACE = 2**29
"""Bytes that a convolution takes while it runs, at most: cuDNN has algorithms that take less where there is no more."""


@dataclass(frozen=True)
class Card:
    """A device that trains.

    Attributes:
        title: its name.
        gib: memory that a process sees, GiB.
        context_gib: of which the context takes.
        bandwidth: of its memory, GB/s.
        fp32: TFLOP/s.
        convolution32: TFLOP/s of convolutions in float32, in TF32 where there is one.
        half: TFLOP/s in 16 bits.
        precisions: in which it computes convolutions, the quickest last.
        launch: seconds that each operation takes beside its work.
        sustained: share of these rates that is reached.
    """

    title: str
    gib: float
    context_gib: float
    bandwidth: float
    fp32: float
    convolution32: float
    half: float
    precisions: tuple[str, ...]
    launch: float = 5e-6
    sustained: Mapping[str, float] | None = None

    @property
    def key(self) -> str:
        """The word for it in ``CARDS``; empty where it is not of the table."""
        return next((key for key, card in CARDS.items() if card.title == self.title), "")

    @property
    def memory_bytes(self) -> int:
        return int(self.gib * GIB)

    def taken(self, tensors: float, convolution: float) -> dict[str, float]:
        """What a process takes beside its tensors, in bytes: context, workspace, slack of the allocator.

        Args:
            tensors: bytes at their peak.
            convolution: bytes of input and result of the largest, copies of which its workspace has room for.
        """
        return {
            "context": self.context_gib * GIB,
            "workspace": min(convolution, LARGEST_WORKSPACE),
            "slack": ALLOCATOR_SLACK * tensors,
        }

    def seconds(self, work: Mapping[Work, int], crops: int) -> float:
        """How long work takes on a batch: each operation as long as its arithmetic or its memory does, and a launch."""
        reached = self.sustained or SUSTAINED
        bandwidth = self.bandwidth * 1e9 * reached["bytes"]
        rates = {
            name: 1e12 * rate * reached[name]
            for name, rate in (
                ("convolution 32", self.convolution32),
                ("product 32", self.fp32),
                ("convolution 16", self.half),
                ("product 16", self.half),
            )
        }
        total = 0.0
        for each, times in work.items():
            moved = (each.bytes + each.bytes_per_crop * crops) / bandwidth
            flops = each.flops + each.flops_per_crop * crops
            total += times * (max(moved, flops / rates[each.rate] if flops else 0.0) + self.launch)
        return total


AMPERE = ("fp32", "bf16")
"""fp16 is as fast there, and needs a scaled loss."""
TURING = ("fp32", "fp16")

CARDS = {
    "gtx750": Card("GeForce GTX 750, 1 GB", 0.98, 0.15, 80, 1.04, 1.04, 1.04, ("fp32",)),
    "3050_laptop": Card("GeForce RTX 3050 Laptop, 4 GB", 3.81, 0.3, 192, 5.5, 5.5, 11.0, AMPERE),
    "2080ti": Card("GeForce RTX 2080 Ti, 11 GB", 10.75, 0.45, 616, 13.4, 13.4, 53.8, TURING),
    "3060": Card("GeForce RTX 3060, 12 GB", 11.75, 0.4, 360, 12.7, 12.7, 25.5, AMPERE),
    "3090": Card("GeForce RTX 3090, 24 GB", 23.69, 0.5, 936, 35.6, 35.6, 71.0, AMPERE),
    "4090": Card("GeForce RTX 4090, 24 GB", 23.64, 0.55, 1008, 82.6, 82.6, 165.2, AMPERE),
    "a100": Card("A100, 40 GB", 39.38, 0.55, 1555, 19.5, 156.0, 312.0, AMPERE),
    "h100": Card("H100, 80 GB", 79.1, 0.65, 3350, 66.9, 494.7, 989.4, AMPERE),
    "h200": Card("H200, 141 GB", 139.7, 0.65, 4800, 66.9, 494.7, 989.4, AMPERE),
}  # fmt: skip
"""By the word that gpu=... takes, in the order of their memory."""

CPU = Card(
    "a core of a CPU", 8.0, 0.3, 5.0, 0.05, 0.05, 0.05, ("fp32",), launch=20e-6,
    sustained=dict.fromkeys(SUSTAINED, 1.0),
)  # fmt: skip
"""Fitted to steps that were measured, of benchmarks/ledger_accuracy.py."""


def card_here(gib: float | None = None) -> Card:
    """The first GPU of this machine, with another amount of memory where one is given.

    Raises:
        UserError: there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise UserError(f"gpu is null, and torch {torch.__version__} sees none here; name one of {', '.join(CARDS)}")
    about = torch.cuda.get_device_properties(0)
    card = card_at_hand(about.name, about.total_memory, (about.major, about.minor))
    return _with_memory(card, gib)


def find_card(name: str, gib: float | None = None) -> Card:
    """A row of the table, with another amount of memory where one is given.

    Raises:
        UserError: an unknown name or an amount that holds nothing.
    """
    key = name.lower().replace(" ", "").replace("-", "_")
    if key not in CARDS:
        raise UserError(
            f"gpu is {name!r}, expected one of {', '.join(CARDS)}; of another card give the nearest, and gib="
        )
    return _with_memory(CARDS[key], gib)


def _with_memory(card: Card, gib: float | None) -> Card:
    if gib is None:
        return card
    if not card.context_gib < gib < 10_000:
        raise UserError(
            f"gib is {gib:g}, expected more than the {card.context_gib:g} GiB that a process takes by itself"
        )
    return replace(card, gib=gib)


def card_at_hand(name: str, memory_bytes: int, capability: tuple[int, int]) -> Card:
    """The row of a GPU as torch describes it; of one that has none, the smallest that computes as it does, with its
    memory.
    """
    plain = name.lower().replace(" ", "")
    found = [key for key in CARDS if key in plain]
    if found:
        return replace(CARDS[max(found, key=len)], gib=memory_bytes / GIB)
    alike = "3060" if capability >= (8, 0) else "2080ti" if capability >= (7, 0) else "gtx750"
    return replace(CARDS[alike], title=name, gib=memory_bytes / GIB)
