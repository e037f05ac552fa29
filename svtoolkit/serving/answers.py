"""What the service answers, as OpenAPI describes it."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str = Field(description="a sentence: what was found, what was expected, what to do")


class Enrolment(BaseModel):
    """A speaker and how many recordings of this speaker the store has."""

    name: str
    recordings: int


class Known(Enrolment):
    """A speaker of the store."""

    created: str = Field(description="UTC, ISO 8601")


class Decision(BaseModel):
    """Whether a recording is of a known speaker."""

    score: float = Field(description="cosine, in [-1, 1]")
    threshold: float | None = Field(description="cosine at and above which the speaker is accepted; null: unknown")
    same_speaker: bool | None = Field(description="null: there is no threshold")
    llr: float | None = Field(description="natural logarithm of the likelihood ratio, by the model's calibration")
    operating_point: str | None = Field(description="what the threshold was chosen by")
    p_miss: float | None = Field(description="share of misses to expect at the threshold")
    p_fa: float | None = Field(description="share of false alarms to expect at the threshold")


class Candidate(BaseModel):
    """A speaker and the cosine to the recording."""

    name: str
    score: float


class Identification(BaseModel):
    """Who of the store is heard."""

    speaker: str | None = Field(description="null: nobody known, or no threshold")
    threshold: float | None
    nearest: list[Candidate] = Field(description="the closest first")


class ScoreCounts(BaseModel):
    """How scores of trials are distributed: counts in equal bins between two cosines."""

    low: float
    high: float
    targets: list[int]
    nontargets: list[int]


class ModelFacts(BaseModel):
    """The model and its threshold."""

    name: str
    digest: str
    threshold: float | None
    operating_point: str | None
    score_counts: ScoreCounts | None = Field(description="null: the model does not know them")


class Health(BaseModel):
    """The service answers."""

    status: str
