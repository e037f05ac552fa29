"""Recordings of any length through a network of convolutions, in stretches of bounded memory, with the same embedding.

A frame of the last feature map depends on the frames around it alone. So a stretch is computed with that much context
on both sides, what the context itself becomes is dropped, and the statistics of the kept frames are merged: all is
that of the whole recording, up to rounding.
"""

from __future__ import annotations

import math
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from svtoolkit.models.pooling import StatisticsPooling, StretchedStatistics
from svtoolkit.models.speaker_network import PooledNetwork
from svtoolkit.reversible import BatchPooling
from svtoolkit.reversible.squeeze import FACTOR

PROBE_FRAMES = 256
"""Enough to see by what factor each convolution shortens time."""
TOLERANCE = 1e-3
"""Of the largest value of a map: far above rounding, far below what a module that looks at all frames would change."""


class TimeGeometry(NamedTuple):
    """How the last feature map lies over the frames that go in.

    Attributes:
        stride: frames that go in for one of the map.
        context: frames on either side that one of the map may depend on; a multiple of ``stride``, and of ``period``.
        period: stretches begin at its multiples; 0: of ``stride``.
    """

    stride: int
    context: int
    period: int = 0


@torch.inference_mode()
def time_geometry(network: nn.Module, num_bins: int) -> TimeGeometry | None:
    """The geometry of a network in eval mode, or None for one that cannot work in stretches.

    The context is counted from the convolutions, as if all followed each other. What no count tells, such as a module
    that looks at all frames at once, shows in a trial with noise that grows louder.

    Args:
        network: any; one of convolutions with statistics pooling can work in stretches.
        num_bins: of the features.
    """
    if not isinstance(network, PooledNetwork) or type(network.pooling) is not StatisticsPooling:
        return None
    device = next(network.parameters()).device
    reach = 0  # frames; what a convolution without padding sees lies on one side

    thread = get_ident()

    def count(layer: nn.Conv1d | nn.Conv2d, given: Any, output: Tensor) -> None:
        nonlocal reach
        if get_ident() != thread:  # another batch goes through
            return
        padded = layer.padding == "same" or layer.padding[-1] != 0
        span = (layer.kernel_size[-1] - 1) * layer.dilation[-1]
        reach += math.ceil(PROBE_FRAMES / output.shape[-1]) * (math.ceil(span / 2) if padded else span)

    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv1d | nn.Conv2d)]
    handles = [layer.register_forward_hook(count) for layer in convolutions]
    try:
        frames = network.feature_map(torch.zeros(1, PROBE_FRAMES, num_bins, device=device)).shape[-1]
    finally:
        for handle in handles:
            handle.remove()
    stride = round(PROBE_FRAMES / frames) if frames else 0
    if stride < 1 or frames * stride > PROBE_FRAMES:
        return None
    is_batch_pooled = any(isinstance(module, BatchPooling) for module in network.modules())
    period = stride * FACTOR if is_batch_pooled else stride  # a map with an odd number of frames is made even
    geometry = TimeGeometry(stride, math.ceil(reach / period + 1) * period, period)
    with torch.autocast(device.type, enabled=False):
        return geometry if _holds(network, geometry, num_bins, device) else None


def embed_in_stretches(network: PooledNetwork, features: Tensor, geometry: TimeGeometry, length: int) -> Tensor:
    """Embedding of one recording: (1, frames, bins) -> (1, embedding_dim).

    Args:
        geometry: of the network.
        length: frames of a stretch, to which the context comes on both sides.
    """
    assert isinstance(network.pooling, StatisticsPooling)
    period = geometry.period or geometry.stride
    length = max(1, length // period) * period
    statistics = StretchedStatistics(network.pooling.eps, network.pooling.after_root)
    frames = features.shape[1]
    for begin in range(0, frames, length):
        kept = _kept(network, features, geometry, begin, min(begin + length, frames))
        if kept.shape[-1]:  # without padding, the map ends before the recording
            statistics.include(kept)
    return network.embedding(statistics.pooled())


def _kept(network: PooledNetwork, features: Tensor, geometry: TimeGeometry, begin: int, end: int) -> Tensor:
    """The frames of the map that lie over ``begin`` to ``end``, as they are in the map of the whole."""
    stride, context = geometry.stride, geometry.context
    first, last = max(0, begin - context), min(features.shape[1], end + context)
    feature_map = network.feature_map(features[:, first:last])
    kept = feature_map[..., (begin - first) // stride :]
    return kept if end == features.shape[1] else kept[..., : (end - begin) // stride]


def _holds(network: PooledNetwork, geometry: TimeGeometry, num_bins: int, device: torch.device) -> bool:
    """Whether two stretches of a trial have the map of the whole."""
    half = geometry.context + 4 * geometry.stride
    noise = torch.randn(1, 2 * half, num_bins, generator=torch.Generator().manual_seed(0))
    features = (noise * torch.linspace(0.1, 10.0, 2 * half).view(1, -1, 1)).to(device)
    whole = network.feature_map(features)
    parts = [_kept(network, features, geometry, *bounds) for bounds in ((0, half), (half, 2 * half))]
    joined = torch.cat(parts, dim=-1)
    if joined.shape != whole.shape:
        return False
    return bool((joined - whole).abs().max() <= TOLERANCE * whole.abs().max())
