"""Seconds of blocks on the device at hand, in the place of those that are counted by rates."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from svtoolkit.errors import UserError
from svtoolkit.memory.planner.costs import Block, Option
from svtoolkit.reversible.segments import run_parts

ROUNDS = 3
"""Of which the median counts, after one that does not."""
CROPS = {"cuda": 32, "cpu": 4}
"""Timed at once: a GPU is busy with as many."""


def copy_of(module: nn.Module, make: Callable[[Tensor], Tensor]) -> Any:
    """A copy whose weights and buffers are made anew, and that nothing is hooked to."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = nn.Parameter(make(parameter), requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = make(buffer)
    for each in module.modules():
        for hooks in (each._forward_pre_hooks, each._forward_hooks, each._backward_pre_hooks):
            memo[id(hooks)] = type(hooks)()
    return copy.deepcopy(module, memo)


@dataclass
class Stopwatch:
    """Runs blocks on tensors with content; or repeats, in the same order, what another one has found.

    Args:
        device: of the blocks.
        batch: crops of the step that is planned; what is timed on a few is scaled to as many.
        precision: type that autocast chooses; None: it is off.
        known: what was found; None: nothing yet.

    Attributes:
        seconds: of each block, one after the other, its evaluation where nothing is recorded, then the evaluation and
            the gradient of each of its ways.
        pace: seconds of stored blocks so far, in those that were counted.
    """

    device: torch.device
    batch: int
    precision: torch.dtype | None = None
    known: Sequence[float] | None = None
    seconds: list[float] = field(default_factory=list)
    _totals: tuple[float, float] = (0.0, 0.0)

    @property
    def pace(self) -> float:
        found, counted = self._totals
        return found / counted if counted else 1.0

    def timed(self, block: Block, module: nn.Module, shape: Sequence[int], dtype: torch.dtype) -> Block:
        """A block with seconds of its own.

        Args:
            module: whose parameters may be fake.
            shape, dtype: of its input.

        Raises:
            UserError: of so many blocks and ways nothing is known.
        """
        begin = len(self.seconds)
        if self.known is None:
            with unset_fake_temporarily(), torch.random.fork_rng():
                self.seconds += self._measured(block.options, module, shape, dtype)
        else:
            self.seconds += self.known[begin : begin + 1 + 2 * len(block.options)]
        found = self.seconds[begin:]
        if len(found) != 1 + 2 * len(block.options):
            raise UserError(OTHERS)
        pairs = zip(found[1::2], found[2::2], strict=True)
        options = tuple(_with(option, *pair) for option, pair in zip(block.options, pairs, strict=True))
        self._totals = self._totals[0] + options[0].seconds, self._totals[1] + block.options[0].seconds
        pace = found[0] / block.seconds if block.seconds else 1.0
        return replace(block, options=options, seconds=found[0], copying=pace * block.copying, saved=pace * block.saved)

    def check_end(self) -> None:
        """Refuse what is known of more.

        Raises:
            UserError: there is.
        """
        if self.known is not None and len(self.known) != len(self.seconds):
            raise UserError(OTHERS)

    def _measured(
        self, options: Sequence[Option], module: nn.Module, shape: Sequence[int], dtype: torch.dtype
    ) -> list[float]:
        real = copy_of(module, self._filled)
        rows = max(1, shape[0] * CROPS.get(self.device.type, CROPS["cpu"]) // self.batch)
        x = torch.linspace(-1, 1, rows * math.prod(shape[1:]), device=self.device, dtype=dtype).view(rows, *shape[1:])
        found = [self._evaluation(real, x)]
        for option in options:
            found += self._step(real, option, x)
        return [seconds * shape[0] / rows for seconds in found]

    def _filled(self, like: Tensor) -> Tensor:
        if not like.is_floating_point():
            return torch.zeros(like.shape, dtype=like.dtype, device=self.device)
        return torch.linspace(0.01, 0.1, like.numel(), dtype=like.dtype, device=self.device).view(like.shape)

    def _evaluation(self, module: nn.Module, x: Tensor) -> float:
        rounds = []
        with torch.no_grad():
            for _ in range(1 + ROUNDS):
                given = x.clone()
                begin = self.now()
                with self._autocast():
                    module(given)
                rounds.append(self.now() - begin)
        return median(rounds[1:])

    def _step(self, module: nn.Module, option: Option, x: Tensor) -> tuple[float, float]:
        """Seconds of evaluation and gradient."""
        evaluations, gradients = [], []
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            for _ in range(1 + ROUNDS):
                module.zero_grad(set_to_none=True)
                given = leaf.clone()
                begin = self.now()
                with self._autocast():
                    value = run_parts([module], (option.part(0),), given)
                evaluations.append(self.now() - begin)
                upstream = torch.full_like(value, 1e-3)
                begin = self.now()
                value.backward(upstream)
                gradients.append(self.now() - begin)
                leaf.grad = None
        return median(evaluations[1:]), median(gradients[1:])

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self.precision, enabled=self.precision is not None)

    def now(self) -> float:
        """When all that was begun is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


OTHERS = (
    "memory.seconds are those of other blocks or other ways than this network has here: it was measured with other "
    "settings, or by another version; leave it at null, and they are measured anew"
)


def _with(option: Option, evaluation: float, gradient: float) -> Option:
    """What is not timed by itself takes the same share of it as was counted."""
    at_end = None if option.seconds_at_end is None else gradient
    pace = (evaluation + gradient) / option.seconds if option.seconds else 1.0
    again = None if option.seconds_again is None else pace * option.seconds_again
    return replace(
        option, seconds=evaluation + gradient, seconds_again=again, seconds_at_end=at_end, gradient_seconds=gradient
    )
