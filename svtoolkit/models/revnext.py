"""RevNeXt for speaker verification: reversible from the stem to the end, inside the blocks too.

Hascoet et al., "Reversible designs for extreme memory cost reduction of CNN training", EURASIP Journal on Image and
Video Processing 2023.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from svtoolkit.models.blocks import conv1x1, strided_size
from svtoolkit.models.invertible_functions import hybrid_function
from svtoolkit.models.pooling import StatisticsPooling
from svtoolkit.models.recomputed_blocks import ConvNormRelu, Reduction
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import (
    FLOOR,
    SLOPE,
    AdditiveCoupling,
    BatchPooling,
    BatchUnpooling,
    Chain,
    ChannelPooling,
    InvertiblePooling,
    ReversibleSequence,
)

POOLINGS: tuple[type[InvertiblePooling], ...] = (ChannelPooling, ChannelPooling, BatchPooling)
"""Between the stages: channels grow fourfold twice, and the last pooling keeps the weights few; the volume of the map
never changes. Batch pooling comes last, since convolutions then shift with their input, by a multiple of the stride:
recordings can be embedded in stretches."""


def build_revnext(
    *,
    num_bins: int,
    embedding_dim: int,
    width: int,
    blocks: tuple[int, int, int, int],
    slope: float = SLOPE,
    norm_floor: float = FLOOR,
    stem_stride: tuple[int, int] = (1, 1),
) -> ChainNetwork:
    """A RevNeXt with fresh weights.

    After channel pooling comes a coupled 1x1 convolution, which mixes what has become channels of one map. At the end
    the maps that batch pooling has made of an utterance are one again, of a quarter of the bins and frames, and an
    ordinary 1x1 convolution leaves a quarter of the channels for the pooling, which keeps several tensors of its input.

    Args:
        num_bins, embedding_dim: as for ``build_model``.
        width: channels of the first stage, a multiple of 4.
        blocks: of the stages.
        slope, norm_floor: of the layers inside the blocks.
        stem_stride: of the stem, (frequency, time).

    Raises:
        ValueError: slope or norm_floor out of range.
    """
    function = partial(hybrid_function, slope=slope, norm_floor=norm_floor)
    steps: list[AdditiveCoupling | InvertiblePooling] = []
    channels = width
    for index, count in enumerate(blocks):
        if index:
            steps.append(POOLINGS[index - 1]())
            channels *= 4 if isinstance(steps[-1], ChannelPooling) else 1
            if isinstance(steps[-1], ChannelPooling):
                steps.append(AdditiveCoupling(*(conv1x1(channels // 2, channels // 2) for _ in range(2))))
        steps += [AdditiveCoupling(function(channels // 2), function(channels // 2)) for _ in range(count)]
    steps.append(BatchUnpooling())
    bins = _bins_at_end(strided_size(num_bins, stem_stride[0]))
    stages: list[nn.Module] = [Chain(ReversibleSequence(steps), Reduction(channels))]
    stem = Chain(ConvNormRelu(1, width, stem_stride))
    embedding = nn.Linear(channels // 2 * bins, embedding_dim)
    network = ChainNetwork(stem, stages, StatisticsPooling(), embedding, layers=5 + 4 * sum(blocks))
    network.maskable = False  # of an odd number of frames, batch pooling makes an even one
    return network


def _bins_at_end(bins: int) -> int:
    for _ in POOLINGS:
        bins = strided_size(bins, 2)
    return 2 * bins
