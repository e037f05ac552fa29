"""Reversible computation: couplings, exact arithmetic, squeeze, and chains that recompute; knows no network."""

from __future__ import annotations

from svtoolkit.reversible.chain import Chain, run_in_chain
from svtoolkit.reversible.coupling import EXACT_BITS, AdditiveCoupling, ReversibleSequence
from svtoolkit.reversible.grid import largest_exact, snap
from svtoolkit.reversible.momentum import PACKED_BITS, MomentumSequence
from svtoolkit.reversible.plans import by_block, by_halves, by_root
from svtoolkit.reversible.squeeze import squeeze, unsqueeze
from svtoolkit.reversible.stash import EightBits, Stash
