"""The blocks of ReDimNet and ReDimNet2; their module names are those of IDRnD's and WeSpeaker's code."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEADS = 4
"""Of the attention over time."""
TIME_KERNELS = (7, 19, 31, 59)
"""Of the convolutions over time before it."""


def to_rows(x: Tensor) -> Tensor:
    """(batch, channels, bins, frames) -> (batch, bins * channels, frames)."""
    return x.transpose(1, 2).flatten(1, 2)


def to_map(rows: Tensor, channels: int) -> Tensor:
    """(batch, bins * channels, frames) -> (batch, channels, bins, frames)."""
    return rows.unflatten(1, (-1, channels)).transpose(1, 2)


class ToRows(nn.Module):
    """``to_rows`` as the end of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return to_rows(x)


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

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """(batch, rows, frames) each -> the same."""
        if len(maps) == 1:
            return maps[0]
        weights = torch.softmax(self.w, dim=1).unbind(1)
        mixed = maps[0] * weights[0]
        for each, weight in zip(maps[1:], weights[1:], strict=True):
            mixed = mixed + each * weight
        return mixed


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of every position: (batch, channels, ...) -> the same."""

    eps = 1e-6

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        last = x.movedim(1, -1)
        return F.layer_norm(last, self.weight.shape, self.weight, self.bias, self.eps).movedim(-1, 1)


class ConvNextBlock(nn.Module):
    """Grouped convolution, BatchNorm, GELU, 1x1 convolution, added to the input (Liu et al., CVPR 2022); same shape.

    Args:
        channels: of the map.
        kernel_size: a number over time, a pair over (frequency, time); odd.
        group_width: channels of a group; a remainder is shared out.
    """

    def __init__(self, channels: int, kernel_size: int | tuple[int, int], group_width: int = 1) -> None:
        super().__init__()
        conv: type[nn.Conv1d] | type[nn.Conv2d] = nn.Conv1d if isinstance(kernel_size, int) else nn.Conv2d
        groups = channels // group_width
        self.dwconvs = nn.ModuleList([conv(channels, channels, kernel_size, padding="same", groups=groups)])  # type: ignore[arg-type]
        self.norm = nn.BatchNorm1d(channels) if isinstance(kernel_size, int) else nn.BatchNorm2d(channels)
        self.pwconv1 = conv(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pwconv1(F.gelu(self.norm(self.dwconvs[0](x))))


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

    (batch, channels, bins, frames) -> the same.
    """

    def __init__(self, channels: int, bins: int, group_width: int, *, excited: bool) -> None:
        super().__init__()
        groups = channels // group_width
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
        self.conv1pw = nn.Conv2d(channels, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
        self.conv2pw = nn.Conv2d(channels, channels, 1)
        self.bn2 = nn.BatchNorm2d(channels)
        self.se = FrequencyExcitation(bins, min(64, max(channels, 32))) if excited else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(F.relu(self.conv1pw(self.conv1(x))))
        out = self.se(self.bn2(self.conv2pw(self.conv2(out))))
        return F.relu(out + x)


class TimeAttention(nn.Module):
    """Self-attention over time of four heads (Vaswani et al., 2017): (batch, frames, channels) -> the same."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.k_proj = nn.Linear(channels, channels)
        self.v_proj = nn.Linear(channels, channels)
        self.q_proj = nn.Linear(channels, channels)
        self.out_proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            projection(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two layers a frame; GELU by its tanh formula (Hendrycks & Gimpel, 2016)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.intermediate_dense = nn.Linear(channels, channels)
        self.output_dense = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(F.gelu(self.intermediate_dense(x), approximate="tanh"))


class TransformerLayer(nn.Module):
    """Attention over time, then two layers a frame: (batch, channels, frames) -> the same.

    The attention is added to its input before the norm, the two layers to what the norm made.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = TimeAttention(channels)
        self.layer_norm = nn.LayerNorm(channels, eps=1e-6)
        self.feed_forward = FeedForward(channels)
        self.final_layer_norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2)
        rows = self.layer_norm(rows + self.attention(rows))
        return self.final_layer_norm(rows + self.feed_forward(rows)).transpose(1, 2)


class TimeContext(nn.Module):
    """The one-dimensional block: fewer rows, convolutions and attention over time, and back; added to the input.

    (batch, rows, frames) -> the same.

    Args:
        rows: of the map.
        reduction: fewer rows are its share of them, rounded down to a multiple of the attention heads.
    """

    def __init__(self, rows: int, reduction: int) -> None:
        super().__init__()
        hidden = max(1, rows // reduction // HEADS) * HEADS
        self.red_dim_conv = nn.Sequential(nn.Conv1d(rows, hidden, 1), ChannelNorm(hidden))
        self.tcm = nn.Sequential(*(ConvNextBlock(hidden, size) for size in TIME_KERNELS), TransformerLayer(hidden))
        self.exp_dim_conv = nn.Conv1d(hidden, rows, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.exp_dim_conv(self.tcm(self.red_dim_conv(x)))
