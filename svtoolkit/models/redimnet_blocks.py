"""The blocks of the maps of ReDimNet and ReDimNet2; their module names are those of IDRnD's and WeSpeaker's code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.reversible import Chain, SharedValues
from svtoolkit.reversible.manual_backward import Request
from svtoolkit.reversible.manual_layers import has_hooks
from svtoolkit.reversible.residual import residual_backward


def to_rows(x: Tensor) -> Tensor:
    """(batch, channels, bins, frames) -> (batch, bins * channels, frames)."""
    return x.transpose(1, 2).reshape(x.shape[0], -1, x.shape[3])


def to_map(rows: Tensor, channels: int) -> Tensor:
    """(batch, bins * channels, frames) -> (batch, channels, bins, frames)."""
    return rows.reshape(rows.shape[0], -1, channels, rows.shape[2]).transpose(1, 2)


def groups_of(channels: int, group_width: int) -> int:
    """Groups of a convolution of so many channels each; 0: one group.

    Raises:
        ValueError: they do not divide the channels.
    """
    groups = channels // group_width if group_width > 0 else int(group_width == 0)
    if not groups or channels % groups:
        raise ValueError(f"group_width is {group_width}, which makes no groups of the {channels} channels of a stage")
    return groups


class ToRows(nn.Module):
    """``to_rows`` as the end of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return to_rows(x)


class Stage(Chain):
    """A stage whose last modules are not run by it, but by whoever reads its map.

    Args:
        layers: of the stage.
        end: the last modules.
    """

    def __init__(self, layers: Sequence[nn.Module], end: Sequence[nn.Module] = ()) -> None:
        super().__init__(*layers, *end)
        self._count = len(layers)

    def members(self) -> list[nn.Module]:
        """Without the end."""
        return list(self)[: self._count]

    def ends(self) -> list[nn.Module]:
        """What makes of the map what is read."""
        return [end_of(list(self)[self._count :])]


def end_of(modules: Sequence[nn.Module]) -> nn.Module:
    """Modules as one."""
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules) if modules else nn.Identity()


class DualStage(nn.Module):
    """A stage that gives its map before the one-dimensional block and after it: (batch, channels, bins, frames) -> two.

    Both without their ends, as of a ``Stage``.

    Args:
        before: map -> rows.
        context: the one-dimensional block.
        of_map, of_context: the ends of both, each (batch, rows, frames).
    """

    def __init__(self, before: nn.Module, context: nn.Module, of_map: nn.Sequential, of_context: nn.Sequential) -> None:
        super().__init__()
        self.before = before
        self.context = context
        self.of_map = of_map
        self.of_context = of_context

    def forward(self, x: Tensor) -> list[Tensor]:
        rows = self.before(x)
        return [rows, self.context(rows)]

    def ends(self) -> list[nn.Module]:
        """What makes of the maps what is read."""
        return [end_of(list(self.of_map)), end_of(list(self.of_context))]


class Mixing(nn.Module):
    """Maps of the same size mixed by weights of every row, which are a softmax over the maps.

    A single map stays as it is, and its weight, which has no effect, is not trained.

    Args:
        count: number of maps.
        rows: of a map; 1: the weights are the same in all rows.
    """

    def __init__(self, count: int, rows: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, count, rows, 1), requires_grad=count > 1)

    def weights(self) -> tuple[Tensor, ...] | None:
        """(1, rows, 1) of each map; None: there is but one."""
        return torch.softmax(self.w, dim=1).unbind(1) if self.w.shape[1] > 1 else None

    def forward(self, maps: SharedValues) -> tuple[Tensor, AbstractContextManager[None]]:
        """(batch, rows, frames) each -> the same, and the context in which it may be made again."""
        weights = self.weights()
        mixed = maps.only() if weights is None else maps.mixed(weights)
        return mixed, maps.made_again(mixed, weights)


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of every position: (batch, channels, ...) -> the same."""

    eps = 1e-6

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        end = x.ndim - 1  # counted from the front: a traced graph keeps no -1
        last = x.movedim(1, end)
        return F.layer_norm(last, self.weight.shape, self.weight, self.bias, self.eps).movedim(end, 1)


class ConvNextBlock(nn.Module):
    """Grouped convolutions, BatchNorm, GELU, 1x1 convolution, added to the input (Liu et al., CVPR 2022); same shape.

    Args:
        channels: of the map.
        kernel_sizes: of the convolutions beside each other: numbers over time, or pairs over (frequency, time).
        group_width: channels of a group; a remainder is shared out. 0: one group.
        rectified: ReLU in the place of GELU.
    """

    def __init__(
        self,
        channels: int,
        kernel_sizes: Sequence[int] | Sequence[tuple[int, int]],
        group_width: int = 1,
        *,
        rectified: bool = False,
    ) -> None:
        super().__init__()
        over_time = isinstance(kernel_sizes[0], int)
        conv: type[nn.Conv1d] | type[nn.Conv2d] = nn.Conv1d if over_time else nn.Conv2d
        groups, inner = groups_of(channels, group_width), channels * len(kernel_sizes)
        self.dwconvs = nn.ModuleList(
            conv(channels, channels, size, padding="same", groups=groups)  # type: ignore[arg-type]
            for size in kernel_sizes
        )
        self.norm = nn.BatchNorm1d(inner) if over_time else nn.BatchNorm2d(inner)
        self.pwconv1 = conv(inner, channels, 1)
        self.activation = F.relu if rectified else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        seen = [conv(x) for conv in self.dwconvs]
        wide = seen[0] if len(seen) == 1 else torch.cat(seen, dim=1)
        return x + self.pwconv1(self.activation(self.norm(wide)))


class FrequencyExcitation(nn.Module):
    """Frequencies weighted by what their means say: (batch, channels, bins, frames) -> the same."""

    def __init__(self, bins: int, hidden: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(bins, hidden)
        self.exitation = nn.Linear(hidden, bins)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.sigmoid(self.exitation(F.relu(self.squeeze(x.mean((1, 3))))))
        return x * weights.unsqueeze(1).unsqueeze(-1)


class GroupedBasicBlock(nn.Module):
    """A basic block of grouped 3x3 convolutions, each followed by a 1x1 one; ReLU stands before the first BatchNorm.

    Without groups there are no 1x1 convolutions. (batch, channels, bins, frames) -> the same.
    """

    def __init__(self, channels: int, bins: int, group_width: int, *, excited: bool) -> None:
        super().__init__()
        groups = groups_of(channels, group_width)

        def pointwise() -> nn.Module:
            return nn.Conv2d(channels, channels, 1) if group_width else nn.Identity()

        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
        self.conv1pw = pointwise()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
        self.conv2pw = pointwise()
        self.bn2 = nn.BatchNorm2d(channels)
        self.se = FrequencyExcitation(bins, min(64, max(channels, 32))) if excited else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        # One expression: no name holds a map beside the two that a layer reads and writes.
        out = self.bn2(self.conv2pw(self.conv2(self.bn1(F.relu(self.conv1pw(self.conv1(x)), inplace=True)))))
        return F.relu(self.se(out) + x, inplace=True)

    def is_as_built(self) -> bool:
        """Whether nothing was hooked or derived."""
        return type(self) is GroupedBasicBlock and not has_hooks(self)

    def backward_in_groups(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """With three maps of the size of x at once; 1x1 convolutions are evaluated once, those before them twice."""
        layers = self.conv1, self.conv1pw, nn.ReLU(), self.bn1, self.conv2, self.conv2pw, self.bn2, self.se
        body = [layer for layer in layers if not isinstance(layer, nn.Identity)]
        return residual_backward(body, (), x, grad_output, request)


class FrequencyEmbedding(nn.Module):
    """A vector of every bin, added in every frame: (batch, channels, bins, frames) -> the same."""

    def __init__(self, channels: int, bins: int) -> None:
        super().__init__()
        self.freq_embedder = nn.Embedding(bins, channels, _weight=torch.randn(bins, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.freq_embedder.weight.T.unsqueeze(-1)
