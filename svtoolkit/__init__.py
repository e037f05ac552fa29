"""svtoolkit: memory-efficient training of deep speaker-verification networks."""

from __future__ import annotations

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`svtoolkit.load_model`, imported when it is first used: torch is slow to import."""
    if name == "load_model":
        from svtoolkit.scoring.speaker_model import SpeakerModel

        return SpeakerModel.load
    raise AttributeError(f"module 'svtoolkit' has no attribute {name!r}")
