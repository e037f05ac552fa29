"""Same speaker or not: what a released model knows about its threshold, and the decision on a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from svtoolkit.errors import UserError
from svtoolkit.scoring.calibration import Calibration


@dataclass(frozen=True)
class Verification:
    """The decision on a pair of recordings.

    Attributes:
        score: cosine of the two embeddings, in [-1, 1].
        threshold: cosine at and above which the two are accepted; None: there is none.
        same_speaker: the decision; None without a threshold.
        llr: natural logarithm of the likelihood ratio that the model's calibration gives the score; None: none stored.
        operating_point: what the threshold was chosen by, such as ``eer`` or ``fa_rate=0.001``; None: it was given.
        p_miss, p_fa: error rates to expect at the threshold, shares from 0 to 1; None where nothing is known.
    """

    score: float
    threshold: float | None = None
    same_speaker: bool | None = None
    llr: float | None = None
    operating_point: str | None = None
    p_miss: float | None = None
    p_fa: float | None = None

    @property
    def decision(self) -> str | None:
        """``same speaker``, ``different speakers``, or None."""
        return None if self.same_speaker is None else ("different speakers", "same speaker")[self.same_speaker]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data: score, decision and the rest."""
        return {"score": self.score, "decision": self.decision, **asdict(self)}

    def __repr__(self) -> str:
        known = {name: value for name, value in asdict(self).items() if value is not None}
        shown = (
            f"{name}={value:.4g}" if type(value) is float else f"{name}={value!r}" for name, value in known.items()
        )
        return f"Verification({', '.join(shown)})"


@dataclass(frozen=True)
class StoredThreshold:
    """The section ``verification`` of model.yaml, as far as a decision needs it.

    Attributes:
        threshold: on the plain cosine.
        operating_point: what it was chosen by.
        p_miss, p_fa: the error rates seen, or promised, at it.
        calibration: from the cosine to the log-likelihood ratio.
    """

    threshold: float | None = None
    operating_point: str | None = None
    p_miss: float | None = None
    p_fa: float | None = None
    calibration: Calibration | None = None

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> StoredThreshold:
        """Take what is there.

        Raises:
            UserError: a value that is no number; names its key.
        """
        numbers = {key: _number(section, key) for key in ("threshold", "p_miss", "p_fa")}
        point = section.get("operating_point")
        fitted = section.get("calibration")
        calibration = None
        if fitted is not None:
            if not isinstance(fitted, Mapping):
                raise UserError(f"verification.calibration is {fitted!r:.80}, expected scale and offset{REMEDY}")
            scale, offset = _number(fitted, "scale"), _number(fitted, "offset")
            if scale is None or offset is None:
                raise UserError(f"verification.calibration is {dict(fitted)}, expected scale and offset{REMEDY}")
            calibration = Calibration(scale, offset)
        return cls(operating_point=None if point is None else str(point), calibration=calibration, **numbers)

    def decide(self, score: float, threshold: float | None = None) -> Verification:
        """Accept or reject a score.

        Args:
            threshold: takes the place of the stored one, whose error rates then say nothing.
        """
        llr = None if self.calibration is None else self.calibration.llr(score)
        if threshold is not None:
            return Verification(score, threshold, score >= threshold, llr)
        if self.threshold is None:
            return Verification(score, llr=llr)
        return Verification(
            score, self.threshold, score >= self.threshold, llr, self.operating_point, self.p_miss, self.p_fa
        )


REMEDY = "; store it again with `svt evaluate` or `svt calibrate`"


def _number(section: Mapping[str, Any], key: str) -> float | None:
    value = section.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"verification.{key} is {value!r:.80}, expected a finite number{REMEDY}")
    return float(value)
