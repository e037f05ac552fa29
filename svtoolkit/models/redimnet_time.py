"""The blocks over time of ReDimNet and ReDimNet2; their module names are those of IDRnD's and WeSpeaker's code."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.redimnet_blocks import ChannelNorm, ConvNextBlock

HEADS = 4
"""Of the attention over time."""
KINDS = ("conv+att", "conv", "att", "fc")
"""Of a ``TimeContext``: convolutions and attention, one of both, or layers that see one frame."""
KERNELS = (7, 19, 31, 59)
"""Of the convolutions one after the other before the attention."""
PARALLEL_KERNELS = (7, 15, 31)
"""Of those beside each other where there is no attention."""
POSITIONS = 59
"""Frames that the convolution before an attention alone sees."""


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
            projection(x).reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    """Two layers a frame; GELU by its tanh formula (Hendrycks & Gimpel, 2016)."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.intermediate_dense = nn.Linear(channels, hidden)
        self.output_dense = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(F.gelu(self.intermediate_dense(x), approximate="tanh"))


class TransformerLayer(nn.Module):
    """Attention over time, then two layers a frame: (batch, channels, frames) -> the same.

    The attention is added to its input before the norm, the two layers to what the norm made.

    Args:
        channels: of a frame.
        hidden: between the two layers.
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.attention = TimeAttention(channels)
        self.layer_norm = nn.LayerNorm(channels, eps=1e-6)
        self.feed_forward = FeedForward(channels, hidden)
        self.final_layer_norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2)
        rows = self.layer_norm(rows + self.attention(rows))
        return self.final_layer_norm(rows + self.feed_forward(rows)).transpose(1, 2)


class PositionalConv(nn.Module):
    """A convolution of every channel over time, and its norm, added to the input: (batch, channels, frames) -> same."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, POSITIONS, padding=POSITIONS // 2, groups=channels)
        self.norm = ChannelNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.conv(x))


class TimeContext(nn.Module):
    """The one-dimensional block: fewer rows, what looks over time, and back; added to the input.

    (batch, rows, frames) -> the same.

    Args:
        rows: of the map.
        reduction: fewer rows are its share of them; for an attention, rounded down to a multiple of its heads.
        kind: one of ``KINDS``.

    Raises:
        ValueError: another kind.
    """

    def __init__(self, rows: int, reduction: int, kind: str = "conv+att") -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"time_block is {kind!r}, expected one of {', '.join(KINDS)}")
        hidden = max(1, rows // reduction // HEADS) * HEADS if "att" in kind else max(1, rows // reduction)
        self.red_dim_conv = nn.Sequential(nn.Conv1d(rows, hidden, 1), ChannelNorm(hidden))
        self.tcm = nn.Sequential(*_layers(hidden, kind))
        self.exp_dim_conv = nn.Conv1d(hidden, rows, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.exp_dim_conv(self.tcm(self.red_dim_conv(x)))


def _layers(hidden: int, kind: str) -> list[nn.Module]:
    if kind == "fc":
        wide = 2 * hidden
        return [nn.Conv1d(hidden, wide, 1), ChannelNorm(wide), nn.GELU(), nn.Conv1d(wide, hidden, 1)]
    if kind == "conv":
        return [ConvNextBlock(hidden, PARALLEL_KERNELS) for _ in range(4)]
    if kind == "att":
        return [PositionalConv(hidden), TransformerLayer(hidden, 2 * hidden)]
    return [*(ConvNextBlock(hidden, (size,)) for size in KERNELS), TransformerLayer(hidden, hidden)]
