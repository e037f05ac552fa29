"""Memory: measured by the ledger, saved by strategies that act on a network through its stages.

Names are looked up when they are first used, so that listing the strategies does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.memory.registry import STRATEGIES, apply_strategy
    from svtoolkit.memory.strategies.checkpoint import has_blocks
    from svtoolkit.memory.strategies.hybrid import has_invertible_blocks
    from svtoolkit.memory.strategies.reversible import is_reversible

__getattr__ = lazy_imports(
    __name__,
    {
        "registry": "STRATEGIES apply_strategy",
        "strategies.checkpoint": "has_blocks",
        "strategies.hybrid": "has_invertible_blocks",
        "strategies.reversible": "is_reversible",
    },
)
