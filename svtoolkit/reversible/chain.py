"""A chain of modules that is trained with stored activations, or by a plan of what is recomputed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.plans import Planner
from svtoolkit.reversible.segments import needs_gradient, run_plan
from svtoolkit.reversible.stash import Stash


class Chain(nn.Sequential):
    """Modules one after the other, trained with stored activations or by recomputation.

    Attributes:
        planner: which modules are recomputed together, by their number; None: none, autograd stores what it needs.
        stash: how what comes into modules that are recomputed one by one is kept; None: as it is.
    """

    planner: Planner | None = None
    stash: Stash | None = None

    def forward(self, x: Tensor) -> Tensor:
        """As ``nn.Sequential``."""
        return super().forward(x) if self.planner is None else _run(list(self), x, self.planner, self.stash)

    def values(self, x: Tensor) -> list[Tensor]:
        """What each module makes of what the one before it made: for networks that use more than the last."""
        found: list[Tensor] = []
        for module in self:
            before = found[-1] if found else x
            found.append(module(before) if self.planner is None else _run([module], before, self.planner, self.stash))
        return found


def run_in_chain(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Modules one after the other; neighbouring chains with the same plan are run as one.

    Between two steps of autograd the engine holds the gradient that it hands over; inside one it need not. A chain with
    hooks on it (those of sharded training are) is called as the module that it is.
    """
    pending: list[nn.Module] = []
    way: tuple[Planner, Stash | None] | None = None
    for module in modules:
        joined = _way(module)
        if way is not None and joined != way:
            x, pending = _run(pending, x, *way), []
        way = joined
        if isinstance(module, Chain) and joined is not None:
            pending.extend(module)
        else:
            x = module(x)
    return _run(pending, x, *way) if pending and way is not None else x


def _way(module: nn.Module) -> tuple[Planner, Stash | None] | None:
    """How a chain is recomputed; None: it is not, or by itself."""
    if not isinstance(module, Chain) or module.planner is None or has_hooks(module):
        return None
    return module.planner, module.stash


def _run(modules: list[nn.Module], x: Tensor, planner: Planner, stash: Stash | None) -> Tensor:
    """Never compiled, not even in parts: backward evaluates once more as it stands, and must find the same numbers."""
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds, and only who compiles needs it
        return _run_as_it_stands(modules, x, planner, stash)
    return torch.compiler.disable(_run_as_it_stands)(modules, x, planner, stash)


_run._torchdynamo_disable = True  # type: ignore[attr-defined]


def _run_as_it_stands(modules: list[nn.Module], x: Tensor, planner: Planner, stash: Stash | None) -> Tensor:
    if needs_gradient(modules, x):
        _refuse_sharded(modules)
        return run_plan(modules, planner(len(modules)), x, stash)
    for module in modules:
        x = module(x)
    return x


def _refuse_sharded(modules: Iterable[nn.Module]) -> None:
    if any(hasattr(parameter, "full_tensor") for module in modules for parameter in module.parameters()):  # a DTensor
        raise RuntimeError(
            "weights are still sharded inside a chain that recomputes its activations; "
            "apply fully_shard to whole stages or to the whole network, not to parts of a stage"
        )
