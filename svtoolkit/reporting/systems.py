"""Several systems on one page: what each is called, which scored the same trials, and how these compare in pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.data.trials import Trials, parse_trials, read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError
from svtoolkit.reporting.formatting import label_of
from svtoolkit.reporting.result_file import System
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.evaluation import METRIC_NAMES, METRICS
from svtoolkit.scoring.paired import compare_systems, enough_resamples
from svtoolkit.system.regular_file import is_regular

CHOICES = ("auto", "all", "none")


@dataclass(frozen=True)
class Request:
    """How systems are compared.

    Attributes:
        compare: one of ``CHOICES``.
        utt2spk: file of the speakers; None: that which a result of the group was evaluated with.
        resamples, confidence, seed: of the bootstrap; more resamples are drawn where Holm's correction needs them, and
            with 0 nothing is compared.
    """

    compare: str
    utt2spk: str | None
    resamples: int
    confidence: float
    seed: int


def name_systems(results: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Give each result its ``label`` and, where evaluation and kind of scores do not tell them apart, its ``system``.

    Args:
        results: changed in place.
        names: of the systems, one a result; empty: the parts of the paths of the score files that differ.

    Raises:
        UserError: another number of names than of results, or a name twice for one evaluation.
    """
    if names and len(names) != len(results):
        raise UserError(f"names lists {len(names)} for {len(results)} systems; give one for each, in their order")
    labels = [label_of(result) for result in results]
    if not names and len(set(labels)) == len(labels):
        return
    called = list(names) or _differing_parts([result["scores_file"] for result in results])
    with_evaluation = [f"{name}, {result['evaluation']}" for name, result in zip(called, results, strict=True)]
    labels = called if len(set(called)) == len(called) else with_evaluation
    for result, name, label in zip(results, called, labels, strict=True):
        result["system"], result["label"] = name, label
    twice = [label for place, label in enumerate(labels) if label in labels[:place]]
    if twice:
        raise UserError(f"found two results of {twice[0]!r}; list each system once, and give each a name of its own")


def _differing_parts(files: Sequence[str]) -> list[str]:
    """Paths without the folders, and without the ends, that all of them share."""
    paths = [Path(file).parts for file in files]
    shortest = min(map(len, paths))
    start = next((n for n in range(shortest) if len({path[n] for path in paths}) > 1), shortest - 1)
    left = shortest - start
    end = next((n for n in range(left) if len({path[-1 - n] for path in paths}) > 1), left - 1)
    return ["/".join(path[start : len(path) - end]) for path in paths]


def compare_in_groups(systems: Sequence[System], request: Request) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare, in pairs, the systems that scored the same trials.

    Returns:
        the comparisons, one mapping a group of systems: ``systems`` and ``evaluations`` (names), ``trials``,
        ``speakers``, ``resamples``, ``confidence`` and ``metrics``: metric -> list of pairs, each ``first``,
        ``second``, ``difference``, ``interval``, ``confidence``, ``p_value``, ``p_holm`` and ``better``, a name or
        None; and notes that say which group was not compared and why.

    Raises:
        UserError: results of one evaluation, or with compare=all any, of different trial lists; an unknown choice;
            utterances without a speaker.
    """
    if request.compare not in CHOICES:
        raise UserError(f"compare is {request.compare!r}; expected {', '.join(CHOICES[:-1])} or {CHOICES[-1]}")
    if request.compare == "none" or not request.resamples:
        return [], []
    comparisons, notes = [], []
    for group in _group(systems, strict=request.compare == "all"):
        if len(group) < 2:
            continue
        speakers = _speakers_file(group, request.utt2spk)
        if speakers is None:
            names = ", ".join(label_of(system.result) for system in group)
            notes.append(f"{names}: not compared, as the speakers of the trials are not known; give utt2spk=FILE.")
        else:
            comparisons.append(_compare(group, speakers, request))
    return comparisons, notes


def _group(systems: Sequence[System], *, strict: bool) -> list[list[System]]:
    """Systems of the same trials together, in whatever order and form their lists stand.

    Raises:
        UserError: different lists of evaluations of the same name or, if ``strict``, of any two.
    """
    groups: list[list[System]] = []
    digests: dict[str, str] = {}
    for system in systems:
        for group in groups:
            if _digest(group[0].result, digests) == _digest(system.result, digests):
                group.append(system)
                break
            first = next((one for one in group if one.result["evaluation"] == system.result["evaluation"]), None)
            if strict or first:
                raise UserError(_explain_difference((first or group[0]).result, system.result, strict=strict))
        else:
            groups.append([system])
    return groups


def _digest(result: Mapping[str, Any], known: dict[str, str]) -> str:
    """Of the trials of a result, whatever the order and the form of their list; each list is read once."""
    file = result["trials_sha256"]
    if file not in known:
        trials = read_trials(result["trials_file"])
        listed = sorted(zip(trials.enrol, trials.test, trials.target.tolist(), strict=True))
        known[file] = hashlib.sha256(repr(listed).encode("utf-8", "surrogatepass")).hexdigest()
    return known[file]


def _explain_difference(one: Mapping[str, Any], other: Mapping[str, Any], *, strict: bool) -> str:
    """The first line of a list that is not that of another, and what to do."""
    files = one["trials_file"], other["trials_file"]
    lines = zip_longest(*(parse_trials(file) for file in files))
    first, second = next((a, b) for a, b in lines if a is None or b is None or a[2] != b[2])
    if second is None:
        found = f"{files[1]}: ends before `{first[1]}` of {files[0]}:{first[0]}"
    else:
        there = f"{files[0]}:{first[0]} has `{first[1]}`" if first else f"{files[0]} ends before it"
        found = f"{files[1]}:{second[0]}: found `{second[1]}`, but {there}"
    remedy = "compare=none" if not strict else "compare=auto"
    return (
        f"{found}; {label_of(other)} and {label_of(one)} can be compared on the same trials alone: score both on one "
        f"list, give evaluations of different lists different names (`svt evaluate name=...`), or {remedy}"
    )


def _speakers_file(group: Sequence[System], given: str | None) -> str | None:
    if given is not None:
        return given
    files = (system.result.get("utt2spk_file") for system in group)
    return next((file for file in files if file and is_regular(file)), None)


def _compare(group: Sequence[System], speakers_file: str, request: Request) -> dict[str, Any]:
    trials, scores = _common(group)
    labels = [label_of(system.result) for system in group]
    resamples = max(request.resamples, enough_resamples(len(group), request.confidence))
    try:
        sides = trial_speakers(trials, read_utt2spk(speakers_file))
        found = compare_systems(
            scores, *sides, trials.target, METRICS,
            resamples=resamples, confidence=request.confidence, seed=request.seed,
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"{speakers_file}, {' and '.join(labels[:2])}: {error}") from error
    return {
        "systems": labels,
        "evaluations": list(dict.fromkeys(system.result["evaluation"] for system in group)),
        "trials": len(trials),
        "speakers": len({*sides[0], *sides[1]}),
        "resamples": resamples,
        "confidence": request.confidence,
        "metrics": {
            name: [
                {
                    "first": labels[pair.first],
                    "second": labels[pair.second],
                    "difference": pair.difference,
                    "interval": list(pair.interval),
                    "confidence": pair.confidence,
                    "p_value": pair.p_value,
                    "p_holm": pair.p_holm,
                    "better": None if pair.better is None else labels[pair.better],
                }
                for pair in pairs
            ]
            for name, pairs in zip(METRIC_NAMES, found, strict=True)
        },
    }


def _common(group: Sequence[System]) -> tuple[Trials, list[np.ndarray]]:
    """The trials that all systems of a group have scored, and the scores of each, in the order of the first."""
    first = group[0].trials
    pairs = list(zip(first.enrol, first.test, strict=True))
    tables = [
        dict(zip(zip(system.trials.enrol, system.trials.test, strict=True), system.scores.tolist(), strict=True))
        for system in group[1:]
    ]
    rows = [row for row, pair in enumerate(pairs) if all(pair in table for table in tables)]
    kept = np.array(rows, dtype=np.int64)
    others = [np.array([table[pairs[row]] for row in rows]) for table in tables]
    return first.take(kept), [group[0].scores[kept], *others]
