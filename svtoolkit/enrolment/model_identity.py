"""What a store says of a loaded model, which any model says of itself."""

from __future__ import annotations

from typing import Protocol

from svtoolkit.enrolment.store import StoreModel
from svtoolkit.scoring.verification import StoredThreshold


class Identified(Protocol):
    """``svtoolkit.scoring.speaker_model.SpeakerModel`` or ``svtoolkit.runtime.model.RuntimeModel``."""

    stored: StoredThreshold

    @property
    def digest(self) -> str: ...

    @property
    def embedding_dim(self) -> int: ...


def identify_model(model: Identified, name: str, threshold: float | None = None) -> StoreModel:
    """What a store says of a loaded model.

    Args:
        name: for messages, such as the path that it was loaded from.
        threshold: takes the place of the model's own.
    """
    if threshold is not None:
        return StoreModel(model.digest, name, model.embedding_dim, threshold)
    point = model.stored.operating_point or "the model's"
    return StoreModel(model.digest, name, model.embedding_dim, model.stored.threshold, point)
