"""Several systems on one page: what each is called, which scored the same trials, and how these compare in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.data.utterance_columns import read_utterance_columns
from svtoolkit.errors import UserError
from svtoolkit.reporting.formatting import label_of
from svtoolkit.reporting.result_file import System, read_result
from svtoolkit.reporting.same_trials import common_part, group_by_trials
from svtoolkit.runs.provenance import read_record
from svtoolkit.scoring.bootstrap import check_confidence, trial_speakers
from svtoolkit.scoring.enrolment import read_enrolments
from svtoolkit.scoring.evaluation import METRIC_NAMES, METRICS
from svtoolkit.scoring.paired import compare_systems, enough_resamples
from svtoolkit.scoring.result import make_result
from svtoolkit.scoring.trial_design import check_design
from svtoolkit.system.regular_file import is_regular

CHOICES = ("auto", "all", "none")

OTHER_LISTS = {
    strict: f", give evaluations of different lists different names (`svt evaluate name=...`), or compare={choice}"
    for strict, choice in ((False, "none"), (True, "auto"))
}
"""What may be done where lists differ, by whether all have to be one."""


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


def gather_results(
    results: Sequence[str], scores: Sequence[str], *, trials: str | None, utt2spk: str | None, **drawn: Any
) -> list[dict[str, Any]]:
    """The results of files of `svt evaluate`, then those of score files, evaluated here.

    Args:
        trials, utt2spk: of the score files.
        drawn: resamples, confidence and seed of their intervals.

    Raises:
        UserError: no file at all, scores without trials or trials without scores; what is read is refused.
    """
    if not results and not scores:
        raise UserError(
            "results lists no file; give results=[a.json,b.json], as written by `svt evaluate`, or scores=[a,b] and "
            "trials=FILE"
        )
    found = [read_result(Path(path)) for path in results]
    if scores and trials is None:
        raise UserError("scores needs the trial list that was scored; give trials=FILE")
    if trials is not None and not scores:
        raise UserError("trials is the list of scores=[...], which lists no file; leave trials out, or give scores")
    for path in scores:
        # The command line is that of the caller, who evaluates the file.
        found.append(make_result(path, str(trials), utt2spk=utt2spk, command="", **drawn))
    return found


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
        ``speakers``, ``resamples``, ``confidence``, ``design`` (what else than the speakers sets the trials apart:
        ``utterances``, ``on_both_sides``, ``confounds`` and the ``warnings``) and ``metrics``: metric -> list of pairs,
        each ``first``, ``second``, ``difference``, ``interval``, ``confidence``, ``p_value``, ``p_holm`` and
        ``better``, a name or None; and notes that say which group was not compared and why.

    Raises:
        UserError: results of one evaluation, or with compare=all any, of different trial lists; an unknown choice;
            utterances without a speaker.
    """
    if request.compare not in CHOICES:
        raise UserError(f"compare is {request.compare!r}; expected {', '.join(CHOICES[:-1])} or {CHOICES[-1]}")
    if request.compare == "none" or not request.resamples:
        return [], []
    comparisons, notes = [], []
    strict = request.compare == "all"
    for group in group_by_trials(systems, strict=strict, remedy=OTHER_LISTS[strict]):
        if len(group) < 2:
            continue
        speakers = speakers_file(group, request.utt2spk)
        if speakers is None:
            names = ", ".join(label_of(system.result) for system in group)
            notes.append(f"{names}: not compared, as the speakers of the trials are not known; give utt2spk=FILE.")
        else:
            drawn = {"resamples": request.resamples, "seed": request.seed}
            comparisons.append(compare_group(group, speakers, confidence=request.confidence, **drawn))
    return comparisons, notes


def speakers_file(group: Sequence[System], given: str | None) -> str | None:
    """The one given, else that which a result was evaluated with and which is still there; None: nothing is known."""
    if given is not None:
        return given
    files = (system.result.get("utt2spk_file") for system in group)
    return next((file for file in files if file and is_regular(file)), None)


def compare_group(
    group: Sequence[System], utt2spk_file: str, *, resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """One comparison of ``compare_in_groups``, of systems of the same trials.

    Args:
        utt2spk_file: the speakers of the trials; other tables beside it tell how the trial list was designed.
        resamples, confidence, seed: as of ``Request``.

    Raises:
        UserError: utterances without a speaker, labels that contradict the speakers, a confidence that is none.
    """
    check_confidence(confidence)
    trials, scores = common_part(group)
    labels = [label_of(system.result) for system in group]
    resamples = max(resamples, enough_resamples(len(group), confidence))
    try:
        utt2spk = read_utt2spk(utt2spk_file)
        sides = trial_speakers(trials, utt2spk)
        found = compare_systems(
            scores, *sides, trials.target, METRICS,
            resamples=resamples, confidence=confidence, seed=seed,
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"{utt2spk_file}, {' and '.join(labels[:2])}: {error}") from error
    known = read_utterance_columns(Path(utt2spk_file).parent, utt2spk)
    design = check_design(
        trials, *sides, durations=known.durations, columns=known.values, enrolments=_enrolments(group), seed=seed
    )
    return {
        "systems": labels,
        "evaluations": list(dict.fromkeys(system.result["evaluation"] for system in group)),
        "trials": len(trials),
        "speakers": len({*sides[0], *sides[1]}),
        "resamples": resamples,
        "confidence": confidence,
        "design": {
            "utterances": design.utterances,
            "on_both_sides": design.on_both_sides,
            "confounds": {
                confound.column: {"auc": confound.auc, "interval": confound.interval and list(confound.interval)}
                for confound in design.confounds
            },
            "warnings": design.warnings(),
        },
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


def _enrolments(group: Sequence[System]) -> dict[str, list[str]]:
    """The enrolment map that the scores of the first system were made with, where its record names one."""
    file = read_record(f"{group[0].result['scores_file']}.yaml").get("enrolments")
    return read_enrolments(file) if isinstance(file, str) and is_regular(file) else {}
