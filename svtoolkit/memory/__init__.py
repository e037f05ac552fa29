"""Memory: measured by the ledger, saved by strategies that act on a network through its stages."""

from __future__ import annotations

from svtoolkit.memory.strategies import apply_strategy, is_reversible
