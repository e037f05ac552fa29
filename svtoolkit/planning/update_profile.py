"""An optimizer's step on all weights, of which a few tensors tell those of any number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException

from svtoolkit.config import AdamW8bitConfig, MuonConfig, OptimConfig, SGD8bitConfig
from svtoolkit.memory.growth import Growth
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.operations import Work, WorkLog
from svtoolkit.optim import OPTIMIZERS, build_optimizer, leave_to_adamw
from svtoolkit.planning.unpredictable import UnpredictableError

SMALLEST_OF_8_BITS = 4096
"""Values from which on a parameter has 8-bit state."""
CHUNKS = 2**21
"""Values that all those with 8-bit state are like: two chunks of an optimizer."""


@dataclass(frozen=True)
class UpdateProfile:
    """An optimizer's step, which knows no batch.

    Attributes:
        state: bytes of its state.
        transients: the most that comes and goes in the step.
        work: each operation, and how often it runs.
    """

    state: int
    transients: int
    work: list[tuple[Work, int]]

    @cached_property
    def counted(self) -> dict[Work, int]:
        """The work by itself."""
        return dict(self.work)

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> UpdateProfile:
        """As for ``StepProfile``."""
        return cls(**{**stored, "work": [(Work(*work), times) for work, times in stored["work"]]})


def profile_update(
    parameters: Sequence[nn.Parameter], optim: OptimConfig, outer: Sequence[nn.Parameter] = ()
) -> UpdateProfile:
    """An optimizer's step on all weights.

    Args:
        outer: weights of the layers that are not hidden.

    Raises:
        UnpredictableError: what it does depends on values.
    """
    try:
        parts = [(_update_of(weights, optim, outer), times) for weights, times in _parts(parameters, optim)]
    except DataDependentOutputException as error:
        raise UnpredictableError(
            f"the optimizer {optim.name}",
            "its update depends on values, and a prediction has none; choose another optimizer",
        ) from error
    work: Counter[Work] = Counter()
    for part, times in parts:
        work.update({each: math.ceil(count * times) for each, count in part.work})
    return UpdateProfile(
        state=math.ceil(sum(part.state * times for part, times in parts)),
        transients=max(part.transients for part, _ in parts),
        work=list(work.items()),
    )


def _parts(parameters: Sequence[nn.Parameter], optim: OptimConfig) -> list[tuple[list[nn.Parameter], float]]:
    """Weights to be updated in the place of all, and how often they stand for them.

    An optimizer of ours treats values alike, so that a few tensors do for many. One with 8-bit state goes through them
    in chunks, and those of fewer than 4096 values are apart. To Muon their shapes matter.
    """
    if optim.name not in OPTIMIZERS.rows or isinstance(optim, MuonConfig):
        return [(list(parameters), 1.0)]
    if not isinstance(optim, (SGD8bitConfig, AdamW8bitConfig)):
        return [(_weights_of(sum(p.numel() for p in parameters)), 1.0)]
    large = sum(p.numel() for p in parameters if p.numel() >= SMALLEST_OF_8_BITS)
    small = sum(p.numel() for p in parameters if p.numel() < SMALLEST_OF_8_BITS)
    count, rest = divmod(small, SMALLEST_OF_8_BITS - 1)
    chunks = min(large, CHUNKS)
    return [
        (_weights_of(*[SMALLEST_OF_8_BITS - 1] * count, rest), 1.0),
        (_weights_of(chunks), large / max(1, chunks)),
    ]


def _weights_of(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(size)) for size in sizes if size]


def _update_of(weights: Sequence[nn.Parameter], optim: OptimConfig, outer: Sequence[nn.Parameter]) -> UpdateProfile:
    if not weights:
        return UpdateProfile(0, 0, [])
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer = build_optimizer(weights, **asdict(optim))
    leave_to_adamw(optimizer, outer)
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None:
            group["foreach"] = True  # torch's choice on CUDA
    with MemoryLedger() as ledger:
        ledger.count([*weights, *(weight.grad for weight in weights if weight.grad is not None)])
        known = sum(ledger.live().values())
        optimizer.step()
        state = sum(ledger.live().values()) - known
        begin = len(ledger.changes)
        with WorkLog(Growth()) as log:
            optimizer.step()
        changes = ledger.changes[begin:]
    optimizer.zero_grad()
    highest = max(accumulate((change.difference for change in changes), initial=0))
    return UpdateProfile(state, highest, list(log.take().items()))
