"""A chain of modules that is trained with stored activations, or by a plan of what is recomputed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.plans import Part, Plan, Planner, check_plan, one_by_one, positions
from svtoolkit.reversible.segments import needs_gradient, run_parts


class Chain(nn.Sequential):
    """Modules one after the other, trained with stored activations or by recomputation.

    Attributes:
        planner: what becomes of the activations of so many modules; None: autograd stores what it needs.
    """

    planner: Planner | None = None

    def members(self) -> list[nn.Module]:
        """What it runs."""
        return list(self)

    def forward(self, x: Tensor) -> Tensor:
        """As ``nn.Sequential``."""
        if self.planner is not None:
            return _run(self.members(), self.planner, x)
        for module in self.members():
            x = module(x)
        return x

    def values(self, x: Tensor) -> list[Tensor]:
        """What each module makes of what the one before it made: for networks that use more than the last.

        Of a plan, modules of a segment are recomputed one by one.
        """
        modules, found = self.members(), [x]
        if self.planner is None:
            for module in modules:
                found.append(module(found[-1]))
        else:
            for part in one_by_one(_planned(self.planner, len(modules))):
                found.append(_run_parts(modules, (part,), found[-1], _keeps_norms(self.planner)))
        return found[1:]


def run_in_chain(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Modules one after the other; neighbouring chains with the same planner are run as one.

    Between two steps of autograd the engine holds the gradient that it hands over; inside one it need not. A chain with
    hooks on it (those of sharded training are) is called as the module that it is.
    """
    pending: list[nn.Module] = []
    planner: Planner | None = None
    for module in modules:
        joined = _planner(module)
        if planner is not None and joined != planner:
            x, pending = _run(pending, planner, x), []
        planner = joined
        if isinstance(module, Chain) and joined is not None:
            pending.extend(module.members())
        else:
            x = module(x)
    return _run(pending, planner, x) if pending and planner is not None else x


def _planner(module: nn.Module) -> Planner | None:
    """Of a chain that is recomputed; None: it is not, or by itself."""
    return module.planner if isinstance(module, Chain) and not has_hooks(module) else None


def _planned(planner: Planner, count: int) -> Plan:
    plan = planner(count)
    check_plan(plan, count)
    return plan


def _run(modules: list[nn.Module], planner: Planner, x: Tensor) -> Tensor:
    return _run_parts(modules, _planned(planner, len(modules)), x, _keeps_norms(planner))


def _keeps_norms(planner: Planner) -> bool:
    """Whether a second evaluation of its chains may differ from the first by rounding."""
    return getattr(planner, "keeps_norms", False)


def _run_parts(modules: list[nn.Module], parts: tuple[Part, ...], x: Tensor, keeps_norms: bool) -> Tensor:
    """Never compiled, not even in parts: backward evaluates once more as it stands, and must find the same numbers."""
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds, and only who compiles needs it
        return _run_as_it_stands(modules, parts, x, keeps_norms)
    return torch.compiler.disable(_run_as_it_stands)(modules, parts, x, keeps_norms)


_run_parts._torchdynamo_disable = True  # type: ignore[attr-defined]


def _run_as_it_stands(modules: list[nn.Module], parts: tuple[Part, ...], x: Tensor, keeps_norms: bool) -> Tensor:
    own = [modules[position] for position in positions(*parts)]
    if needs_gradient(own, x):
        _refuse_sharded(own)
        return run_parts(modules, parts, x, keeps_norms=keeps_norms)
    for module in own:
        x = module(x)
    return x


def _refuse_sharded(modules: Iterable[nn.Module]) -> None:
    if any(hasattr(parameter, "full_tensor") for module in modules for parameter in module.parameters()):  # a DTensor
        raise RuntimeError(
            "weights are still sharded inside a chain that recomputes its activations; "
            "apply fully_shard to whole stages or to the whole network, not to parts of a stage"
        )
