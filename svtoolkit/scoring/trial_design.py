"""What a trial list gives away without a network: what else than the speaker sets its two kinds of trials apart.

A list measures speaker verification where target and non-target trials differ by the speakers alone. Where the two
sides of target trials are also more alike in length, or of one session or channel more often, a system may be good at
that instead. So each such column is taken for a system of its own, whose score says how alike both sides are in it, and
judged by the area under its ROC curve: the chance that a target trial scores higher than a non-target trial, ties
counting one half (D. Bamber, "The area above the ordinal dominance graph and the area below the receiver operating
characteristic graph", Journal of Mathematical Psychology 12 (1975) 387-415), 0.5 where the column says nothing. Its
interval is over resampled speakers, as that of an error rate (:mod:`svtoolkit.scoring.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.scoring.bootstrap import Interval, draw_speakers, number_speakers
from svtoolkit.scoring.cosine import first_of
from svtoolkit.scoring.speaker_trials import SpeakerTrials

AT_LEAST = 0.05
"""How far an area is from 0.5 before its interval is looked at; it is warned of where that leaves 0.5 out."""

KEPT_APART = 0.1
"""Share of utterances on both sides up to which a list means to keep enrolment and test apart."""

RESAMPLES, CONFIDENCE = 200, 0.95

OF_DURATIONS = ("difference of the durations", "length of both utterances")

TELLS = "tells target from non-target trials"


@dataclass(frozen=True)
class Confound:
    """A column as a system.

    Attributes:
        column: what it is.
        auc: area under its ROC curve.
        interval: of the area, over resampled speakers; None where the area is nearer to 0.5 than ``AT_LEAST``.
        trials: how many have a value on both sides.
        target, nontarget: means of how alike their sides are; of a column of names, shares of trials of one name.
    """

    column: str
    auc: float
    interval: Interval | None
    trials: int
    target: float
    nontarget: float

    @property
    def is_found(self) -> bool:
        """Whether it tells target from non-target trials."""
        return self.interval is not None and not self.interval.low <= 0.5 <= self.interval.high


@dataclass(frozen=True)
class TrialDesign:
    """What is known of a list beside its speakers.

    Attributes:
        utterances, on_both_sides: how many there are, and how many are enrolment in a trial and test in another.
        with_itself: trials that compare an utterance with itself.
        repeated: trials whose pair the list has already had, in either order.
        enrolled: trials whose test utterance the model was enrolled with.
        confounds: of each column that is known.
    """

    utterances: int
    on_both_sides: int
    with_itself: list[str]
    repeated: list[str]
    enrolled: list[str]
    confounds: list[Confound]

    def warnings(self) -> list[str]:
        """Sentences about what is wrong with the list, with figures."""
        found = [
            f"{len(trials)} trials {fault} ({first_of(trials)}): {remedy}"
            for trials, fault, remedy in (
                (self.with_itself, "compare an utterance with itself", "any system accepts them; drop them"),
                (self.repeated, "repeat a pair of the list", "they count twice; drop them"),
                (
                    self.enrolled,
                    "test a model with an utterance that it was enrolled with",
                    "any system accepts them; drop them, or enrol with others",
                ),
            )
            if trials
        ]
        if 0 < self.on_both_sides <= KEPT_APART * self.utterances:
            found.append(
                f"{self.on_both_sides} of {self.utterances} utterances are enrolment in one trial and test in another, "
                "while the list keeps enrolment and test apart: look whether they are meant to"
            )
        return found + [_explain(confound) for confound in self.confounds if confound.is_found]


def check_design(
    trials: Trials,
    enrol_speakers: Sequence[str],
    test_speakers: Sequence[str],
    *,
    durations: Mapping[str, float],
    columns: Mapping[str, Mapping[str, str]],
    enrolments: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
) -> TrialDesign:
    """Look at a trial list as its utterances make it, without any scores.

    Args:
        trials: the list.
        enrol_speakers, test_speakers: see :func:`~svtoolkit.scoring.bootstrap.trial_speakers`.
        durations: utterance -> seconds; trials of others are left out of what is said of durations.
        columns: name of a column, such as session or channel, -> utterance -> value.
        enrolments: model -> the utterances that it was enrolled with.
        seed: of the draws of the speakers.

    Raises:
        UserError: labels that contradict the speakers.
    """
    enrol, test = trials.numbered
    names = trials.names

    def named(rows: np.ndarray) -> list[str]:
        return [f"`{names[one]} {names[other]}`" for one, other in zip(enrol[rows], test[rows], strict=True)]

    pairs = np.minimum(enrol, test) * len(names) + np.maximum(enrol, test)
    first_places = np.unique(pairs, return_index=True)[1]
    sides = np.zeros((2, len(names)), dtype=bool)
    sides[0, enrol] = sides[1, test] = True
    number = trials.numbers
    enrolled = [
        number[model] * len(names) + number[utterance]
        for model, utterances in (enrolments or {}).items()
        for utterance in utterances
        if model in number and utterance in number
    ]
    again = np.flatnonzero(np.isin(enrol * len(names) + test, np.array(enrolled, dtype=np.int64)))
    speakers = number_speakers(enrol_speakers, test_speakers, trials.target)
    return TrialDesign(
        utterances=len(names),
        on_both_sides=int(sides.all(axis=0).sum()),
        with_itself=named(np.flatnonzero(enrol == test)),
        repeated=named(np.setdiff1d(np.arange(len(trials)), first_places)),
        enrolled=named(again),
        confounds=[
            _judge(column, alike, speakers, seed) for column, alike in _alike(trials, durations, columns).items()
        ],
    )


def area_under_roc(values: np.ndarray, target: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The chance that a target trial has a higher value than a non-target trial, ties counting one half.

    Args:
        values: finite, shape (trials,).
        target: bool, shape (trials,).
        weights: how often each trial counts, shape (trials,); None: once.
    """
    distinct, places = np.unique(values, return_inverse=True)
    return _area(places, len(distinct), target, np.ones(len(values)) if weights is None else weights)


def _area(places: np.ndarray, distinct: int, target: np.ndarray, weights: np.ndarray) -> float:
    """Of values given by their ranks."""
    of_targets = np.bincount(places, weights * target, distinct)
    of_nontargets = np.bincount(places, weights * ~target, distinct)
    below = np.cumsum(of_nontargets) - 0.5 * of_nontargets
    return float(of_targets @ below / (of_targets.sum() * of_nontargets.sum()))


def _alike(
    trials: Trials, durations: Mapping[str, float], columns: Mapping[str, Mapping[str, str]]
) -> dict[str, np.ndarray]:
    """Column -> how alike both sides are in it, shape (trials,); NaN where a side has no value."""
    enrol, test = trials.numbered
    seconds = np.array([durations.get(name, np.nan) for name in trials.names])
    logs = np.log(np.where(seconds > 0, seconds, np.nan))
    one, other = logs[enrol], logs[test]
    values = dict(zip(OF_DURATIONS, (-np.abs(one - other), one + other), strict=True))
    for column, table in columns.items():
        number = {value: place for place, value in enumerate(dict.fromkeys(table.values()))}
        codes = np.array([number[table[name]] if name in table else -1 for name in trials.names])
        first, second = codes[enrol], codes[test]
        values[column] = np.where((first < 0) | (second < 0), np.nan, (first == second).astype(np.float64))
    kinds = trials.target
    return {
        column: alike
        for column, alike in values.items()
        if not np.isnan(alike[kinds]).all() and not np.isnan(alike[~kinds]).all()
    }


def _judge(column: str, alike: np.ndarray, speakers: SpeakerTrials, seed: int) -> Confound:
    known = ~np.isnan(alike)
    values, enrol, test, target = (each[known] for each in (alike, *speakers[:3]))
    distinct, places = np.unique(values, return_inverse=True)
    area = _area(places, len(distinct), target, np.ones(len(values)))
    means = (float(values[kind].mean()) for kind in (target, ~target))
    interval = None
    if abs(area - 0.5) >= AT_LEAST:
        counts = speakers.by_speaker(known)
        draws = draw_speakers(np.random.default_rng(seed), counts, speakers.speakers, RESAMPLES)
        areas = [
            _area(places, len(distinct), target, drawn[enrol] * np.where(target, 1, drawn[test]))
            for drawn in chain.from_iterable(each.drawn for each in draws)
        ]
        low, high = np.quantile(areas, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        interval = Interval(float(low), float(high))
    return Confound(column, area, interval, len(values), *means)


def _explain(confound: Confound) -> str:
    low, high = confound.interval or (0.0, 1.0)
    figures = f"AUC {confound.auc:.3f}, {100 * CONFIDENCE:g} % interval {low:.3f} to {high:.3f}; chance is 0.5"
    if confound.column in OF_DURATIONS:
        return f"the {confound.column} alone {TELLS} ({figures}): draw other trials, or cut utterances to one length"
    return (
        f"{confound.column} alone {TELLS} ({figures}): both sides have one value in {100 * confound.target:.1f} % of "
        f"the target and {100 * confound.nontarget:.1f} % of the non-target trials; draw trials of equal shares"
    )
