"""What became of utterances that were to be embedded: of all, and of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Extraction:
    """Embeddings, and the utterances that have none.

    Attributes:
        utterances: ids in the order asked for, failures left out.
        embeddings: float32, shape (utterances, embedding_dim).
        failures: utterance id -> reason.
        audio_seconds, wall_seconds: of what was extracted; their ratio is the real-time factor.
    """

    utterances: list[str]
    embeddings: np.ndarray
    failures: dict[str, str] = field(default_factory=dict)
    audio_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def real_time_factor(self) -> float:
        """Seconds of work for a second of audio."""
        return self.wall_seconds / self.audio_seconds if self.audio_seconds else float("nan")


@dataclass
class Embedded:
    """What became of a batch.

    Attributes:
        rows: positions of the utterances that have an embedding.
        embeddings: float32, shape (rows, embedding_dim).
        failures: position -> reason.
        audio_seconds: of the rows.
    """

    rows: list[int] = field(default_factory=list)
    embeddings: list[np.ndarray] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    audio_seconds: float = 0.0

    @property
    def finished(self) -> int:
        """Utterances, embedded or not."""
        return len(self.rows) + len(self.failures)
