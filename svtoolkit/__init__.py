"""svtoolkit: memory-efficient training of deep speaker-verification networks.

``load_model`` gives a released model that embeds and verifies recordings, ``train`` runs what `svt train` runs. Names
are imported when they are first used (PEP 562), since torch is slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.commands.train import train
    from svtoolkit.errors import UserError
    from svtoolkit.scoring.speaker_model import SpeakerModel, load_model
    from svtoolkit.scoring.verification import Verification

__version__ = "0.1.0"

__all__ = ["SpeakerModel", "UserError", "Verification", "__version__", "load_model", "train"]

__getattr__ = lazy_imports(
    __name__,
    {
        "commands.train": "train",
        "errors": "UserError",
        "scoring.speaker_model": "SpeakerModel load_model",
        "scoring.verification": "Verification",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
