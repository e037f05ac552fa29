"""Kaldi-compatible log-mel filter bank, and the mel spectrograms of other toolkits, on the device of the network.

Names are looked up when they are first used, so that importing this package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from svtoolkit.features.fbank import FilterBank, dither_noise
    from svtoolkit.features.front_end import FrontEnd, build_front_end
    from svtoolkit.features.kaldi_filters import FilterBankOptions

__all__ = ["FilterBank", "FilterBankOptions", "FrontEnd", "build_front_end", "dither_noise"]

_MODULES = {
    "FilterBank": "svtoolkit.features.fbank",
    "FilterBankOptions": "svtoolkit.features.kaldi_filters",
    "FrontEnd": "svtoolkit.features.front_end",
    "build_front_end": "svtoolkit.features.front_end",
    "dither_noise": "svtoolkit.features.fbank",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
