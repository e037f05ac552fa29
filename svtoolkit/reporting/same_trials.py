"""Which systems scored the same trials, in whatever order and form their lists stand, and the scores side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from svtoolkit.data.trials import Trials, parse_trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.reporting.formatting import label_of
from svtoolkit.reporting.result_file import System


def group_by_trials(systems: Sequence[System], *, strict: bool, remedy: str) -> list[list[System]]:
    """Systems of the same trials together.

    Args:
        strict: all have to be of the same trials; else those of evaluations of the same name.
        remedy: what a message says may be done beside scoring both on one list.

    Raises:
        UserError: lists that differ where they must not; gives the first line that does.
    """
    groups: list[list[System]] = []
    digests: dict[str, str] = {}
    for system in systems:
        for group in groups:
            if _are_same(group[0].result, system.result, digests):
                group.append(system)
                break
            first = next((one for one in group if one.result["evaluation"] == system.result["evaluation"]), None)
            if strict or first:
                raise UserError(_explain_difference((first or group[0]).result, system.result, remedy))
        else:
            groups.append([system])
    return groups


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any], known: dict[str, str]) -> bool:
    return one["trials_sha256"] == other["trials_sha256"] or _digest(one, known) == _digest(other, known)


def _digest(result: Mapping[str, Any], known: dict[str, str]) -> str:
    """Of the trials of a result, whatever the order and the form of their list; each list is read once."""
    file = result["trials_sha256"]
    if file not in known:
        trials = read_trials(result["trials_file"])
        listed = sorted(zip(trials.enrol, trials.test, trials.target.tolist(), strict=True))
        known[file] = hashlib.sha256(repr(listed).encode("utf-8", "surrogatepass")).hexdigest()
    return known[file]


def _explain_difference(one: Mapping[str, Any], other: Mapping[str, Any], remedy: str) -> str:
    """The first trial that one list has and the other has not, or has elsewhere, and what to do."""
    files = one["trials_file"], other["trials_file"]
    listed = [list(parse_trials(file)) for file in files]
    known = [{trial for _, _, trial in lines} for lines in listed]
    first, second = next((a, b) for a, b in zip_longest(*listed) if a is None or b is None or a[2] != b[2])
    if first and second and first[2] in known[1] and second[2] in known[0]:  # in another order
        foreign = next((line for line in listed[1] if line[2] not in known[0]), None)
        missing = next((line for line in listed[0] if line[2] not in known[1]), None)
        first, second = (None, foreign) if foreign else (missing, None) if missing else (first, second)
    if second is None:
        assert first is not None
        found = f"{files[1]}: lacks `{first[1]}` of {files[0]}:{first[0]}"
    else:
        there = f"{files[0]}:{first[0]} has `{first[1]}`" if first else f"{files[0]} lacks it"
        found = f"{files[1]}:{second[0]}: found `{second[1]}`, but {there}"
    return (
        f"{found}; {label_of(other)} and {label_of(one)} can be compared on the same trials alone: score both on one "
        f"list{remedy}"
    )


def common_part(group: Sequence[System]) -> tuple[Trials, list[np.ndarray]]:
    """The trials that all systems of a group have scored, and the scores of each, in the order of the first."""
    first = group[0].trials
    if all(_in_one_order(first, system.trials) for system in group[1:]):
        return first, [system.scores for system in group]
    pairs = list(zip(first.enrol, first.test, strict=True))
    tables = [
        dict(zip(zip(system.trials.enrol, system.trials.test, strict=True), system.scores.tolist(), strict=True))
        for system in group[1:]
    ]
    rows = [row for row, pair in enumerate(pairs) if all(pair in table for table in tables)]
    kept = np.array(rows, dtype=np.int64)
    others = [np.array([table[pairs[row]] for row in rows]) for table in tables]
    return first.take(kept), [group[0].scores[kept], *others]


def _in_one_order(one: Trials, other: Trials) -> bool:
    """Whether two lists are the same line by line."""
    sides = zip(one.numbered, other.numbered, strict=True)
    return one.names == other.names and all(np.array_equal(mine, its) for mine, its in sides)
