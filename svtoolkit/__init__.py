"""svtoolkit: memory-efficient training of deep speaker-verification networks.

``load_model`` gives a released model that embeds and verifies recordings, ``train`` runs what `svt train` runs. Names
are imported when they are first used (PEP 562), since torch is slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from svtoolkit.commands.train import train
    from svtoolkit.errors import UserError
    from svtoolkit.scoring.speaker_model import SpeakerModel, load_model
    from svtoolkit.scoring.verification import Verification

__version__ = "0.1.0"

__all__ = ["SpeakerModel", "UserError", "Verification", "__version__", "load_model", "train"]

_MODULES = {
    "SpeakerModel": "scoring.speaker_model",
    "UserError": "errors",
    "Verification": "scoring.verification",
    "load_model": "scoring.speaker_model",
    "train": "commands.train",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'svtoolkit' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"svtoolkit.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
