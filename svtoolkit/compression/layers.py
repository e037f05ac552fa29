"""Layers whose matrix W (out, in) is a product U V of low rank, in the place of Linear layers and convolutions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeGuard

from torch import Tensor, nn

from svtoolkit.compression.factors import FACTOR_U, FACTOR_V, product
from svtoolkit.errors import UserError
from svtoolkit.reversible.coupled_convolution import CoupledConvolution

Dense = nn.Linear | nn.Conv1d | nn.Conv2d


class LowRank(nn.Module):
    """A Linear layer or convolution in two steps: V to ``rank`` values, U from these to the output.

    The kernel of a convolution is the matrix (out, in x kernel size): V has its geometry, U the kernel size 1. Both are
    torch's own layers, so that whatever works on these works here. Begins with random factors whose product has the
    variance of torch's own initial weights.

    Args:
        layer: whose shape, device, type and bias it has.
        rank: from 1 to that of a matrix of this shape.
    """

    def __init__(self, layer: Dense, rank: int) -> None:
        super().__init__()
        self.low_rank_v: Dense
        self.low_rank_u: Dense
        made: dict[str, Any] = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        has_bias = layer.bias is not None
        if isinstance(layer, nn.Linear):
            self.low_rank_v = nn.Linear(layer.in_features, rank, bias=False, **made)
            self.low_rank_u = nn.Linear(rank, layer.out_features, bias=has_bias, **made)
        else:
            kind: Any = type(layer)
            self.dilation = layer.dilation
            geometry = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, **made}
            self.low_rank_v = kind(layer.in_channels, rank, layer.kernel_size, bias=False, **geometry)
            self.low_rank_u = kind(rank, layer.out_channels, 1, bias=has_bias, **made)
        bound = (3 / rank) ** 0.5
        nn.init.uniform_(self.low_rank_u.weight, -bound, bound)
        self.requires_grad_(layer.weight.requires_grad)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.low_rank_u(self.low_rank_v(x))
        return value

    @property
    def factors(self) -> tuple[nn.Parameter, nn.Parameter]:
        """U (out, rank) and V (rank, in), both with the axes of a kernel where it is a convolution."""
        return self.low_rank_u.weight, self.low_rank_v.weight  # type: ignore[return-value]  # torch says Tensor

    @property
    def weight(self) -> Tensor:
        """The product, of the shape of the layer that it stands for."""
        return product(*self.factors)

    @property
    def bias(self) -> Tensor | None:
        return self.low_rank_u.bias


def can_be_low_rank(module: nn.Module) -> TypeGuard[Dense]:
    """Whether it is a layer of torch's with one matrix; sub-classes may do something else with theirs."""
    if type(module) not in (nn.Linear, nn.Conv1d, nn.Conv2d):
        return False
    return getattr(module, "groups", 1) == 1 and getattr(module, "padding_mode", "zeros") == "zeros"


def find_layers(network: nn.Module, patterns: Sequence[str] = (), *, min_values: int = 1) -> dict[str, Dense | LowRank]:
    """Layers with a matrix of ``min_values`` or more, by name; those of low rank already among them.

    Args:
        patterns: which, as file names are chosen: ``embedding``, ``stages.*``; none: Linear layers, convolutions over
            time, and two-dimensional ones of kernel size 1. Two-dimensional ones of other sizes need a pattern.

    Raises:
        UserError: a pattern that no such layer has.
    """
    named = _layers(network)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UserError(
                f"layers names {pattern!r:.80}, which no linear layer or convolution without groups of the network "
                f"has; {_nearest(pattern, named)}"
            )
    found = {}
    for name, module in named.items():
        weight = module.weight
        is_square = weight.dim() == 4 and weight[0, 0].numel() > 1
        is_asked = any(fnmatchcase(name, pattern) for pattern in patterns) if patterns else not is_square
        if is_asked and weight.numel() >= min_values and min(weight.flatten(1).shape) > 1:
            found[name] = module
    return found


def apply_ranks(network: nn.Module, ranks: Mapping[str, int]) -> None:
    """Replace layers by ones of low rank, with fresh weights.

    Args:
        ranks: by the name of the layer, such as ``embedding`` or ``stages.2.conv``.

    Raises:
        UserError: no such layer, one without a matrix of its own, or no rank of its matrix.
    """
    modules, known = dict(network.named_modules()), _layers(network)
    for name, rank in ranks.items():
        layer = known.get(name)
        if layer is None or isinstance(layer, LowRank):
            what = f"a {type(modules[name]).__name__}" if name in modules else "which the network does not have"
            raise UserError(
                f"model.ranks names {name!r:.80}, {what}; expected a linear layer or a convolution without groups; "
                f"{_nearest(name, known)}"
            )
        most = min(layer.weight.flatten(1).shape)
        if type(rank) is not int or not 1 <= rank <= most:
            raise UserError(
                f"model.ranks: the rank of {name} is {rank!r:.80}, expected a whole number from 1 to {most}"
            )
        parent, _, last = name.rpartition(".")
        setattr(modules[parent], last, LowRank(layer, rank))


def _layers(network: nn.Module) -> dict[str, Dense | LowRank]:
    """What has a low rank or can have one; the halves of a coupled convolution are inverted by hand, and cannot."""
    coupled = {
        id(layer)
        for module in network.modules()
        if isinstance(module, CoupledConvolution)
        for layer in module.modules()
    }
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, LowRank)
        or (can_be_low_rank(module) and id(module) not in coupled and not name.endswith((FACTOR_U, FACTOR_V)))
    }


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
    return f"the nearest are {', '.join(near)}" if near else "it has none"
