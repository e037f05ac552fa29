"""Sums over crops that survive a stop: what history and progress show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass
class Meter:
    """Totals since the last ``clear``; times in seconds."""

    loss: float = 0.0
    correct: int = 0
    correct_no_margin: int = 0
    crops: int = 0
    waiting: float = 0.0
    seconds: float = 0.0
    distance: float = 0.0
    pairwise: float = 0.0
    tuples: int = 0
    tuples_correct: int = 0

    @classmethod
    def of(cls, totals: Mapping[str, float]) -> Meter:
        """Of sums by name; names of nothing that is counted here are passed over."""
        return cls(**{name: type(zero)(totals[name]) for name, zero in asdict(cls()).items()})

    def add(self, other: Meter) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def averages(self) -> dict[str, float]:
        """Loss of the classes and accuracies a crop; data_wait is the share of time spent waiting for data.

        With a larger network to learn from, ``distance``: 1 - cosine to its embeddings. With a pairwise loss,
        ``pairwise``: that loss of a tuple that was compared with others, and ``pairwise_accuracy`` of these tuples.
        """
        crops = max(self.crops, 1)
        sums = {"pairwise": self.pairwise, "pairwise_accuracy": self.tuples_correct} if self.tuples else {}
        return {
            "loss": self.loss / crops,
            "accuracy": self.correct / crops,
            "accuracy_no_margin": self.correct_no_margin / crops,
            "data_wait": self.waiting / self.seconds if self.seconds else 0.0,
            **({"distance": self.distance / crops} if self.distance else {}),
            **{name: total / self.tuples for name, total in sums.items()},
        }
