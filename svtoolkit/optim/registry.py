"""Optimizers that have a name of their own; those of torch.optim and of any installed package need none."""

from __future__ import annotations

from svtoolkit.config import (
    AdamW8bitConfig,
    AdamWConfig,
    Muon8bitConfig,
    MuonConfig,
    OptimConfig,
    SGD8bitConfig,
    SGDConfig,
)
from svtoolkit.registry import Registry, Row

EIGHT_BIT = "svtoolkit.optim.backends:build_eight_bit"

OPTIMIZERS = Registry(
    "optimizer",
    "svtoolkit.optim",
    {
        "sgd": Row("torch.optim:SGD", SGDConfig, help="SGD with momentum"),
        "adamw": Row("svtoolkit.optim.builders:build_adamw", AdamWConfig, help="AdamW"),
        "muon": Row("svtoolkit.optim.muon:Muon", MuonConfig, help="Muon for kernels of hidden layers, AdamW beside it"),
        "sgd_8bit": Row(EIGHT_BIT, SGD8bitConfig, {"name": "sgd_8bit"}, "SGD with 8-bit momentum"),
        "adamw_8bit": Row(EIGHT_BIT, AdamW8bitConfig, {"name": "adamw_8bit"}, "AdamW with 8-bit moments"),
        "muon_8bit": Row("svtoolkit.optim.muon_8bit:Muon8bit", Muon8bitConfig, help="Muon with 8-bit moments"),
    },
    OptimConfig,
)
"""Name -> how the optimizer is built. A target takes the parameters by position, the fields of its settings but
``name`` and the row's arguments by keyword, raises ValueError where they make no optimizer, and returns a
torch.optim.Optimizer."""
