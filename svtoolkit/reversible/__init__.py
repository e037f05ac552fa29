"""Reversible computation: couplings, exact arithmetic, squeeze, and chains that recompute; knows no network."""

from __future__ import annotations

from svtoolkit.reversible.chain import Chain, run_in_chain
from svtoolkit.reversible.coupled_convolution import CoupledConvolution
from svtoolkit.reversible.coupling import EXACT_BITS, AdditiveCoupling, ReversibleSequence
from svtoolkit.reversible.grid import largest_exact, snap
from svtoolkit.reversible.invertible_activation import SLOPE, InvertibleLeakyReLU
from svtoolkit.reversible.invertible_norm import FLOOR, InvertibleBatchNorm2d
from svtoolkit.reversible.layerwise import LayerwiseFunction
from svtoolkit.reversible.momentum import PACKED_BITS, MomentumSequence
from svtoolkit.reversible.plans import Leaf, Segment, by_block, by_halves, by_root
from svtoolkit.reversible.pooling import BatchPooling, BatchUnpooling, ChannelPooling, InvertiblePooling
from svtoolkit.reversible.shared import Repetition, SharedValues, SharesValues, Sharing, share_values
from svtoolkit.reversible.squeeze import squeeze, unsqueeze
from svtoolkit.reversible.stash import EightBits, Stash
