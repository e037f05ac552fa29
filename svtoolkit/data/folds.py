"""Speakers divided into folds, each of which is held out of training once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from svtoolkit.data.tables import require_table
from svtoolkit.errors import UserError

ALWAYS_TRAINS = 0
"""Number of a fold that none is held out of: its speakers train every time."""


def draw_folds(counts: Mapping[str, int], *, folds: int, seed: int) -> dict[str, int]:
    """Divide speakers so that folds differ by one speaker at most, and by few utterances.

    Speakers in a random order, those with most utterances first, are dealt to folds 1 ... n, n ... 1, 1 ... n and on.

    Args:
        counts: speaker -> number of utterances.
        folds: two or more.
        seed: the same seed, speakers and counts give the same folds.

    Returns:
        speaker -> its fold, counted from 1.

    Raises:
        UserError: as ``check_folds``, or fewer than two folds.
    """
    if folds < 2:
        raise UserError(f"folds is {folds}, expected 2 or more: one is held out while the others train")
    if len(counts) < 2 * folds:
        raise UserError(
            f"folds is {folds}, but there are {len(counts)} speakers, and trials of a fold need two; expected "
            f"{2 * folds} speakers or more: lower folds or add speakers"
        )
    order = sorted(counts)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda speaker: -counts[speaker])
    there_and_back = [*range(1, folds + 1), *range(folds, 0, -1)]
    dealt = {speaker: there_and_back[place % (2 * folds)] for place, speaker in enumerate(order)}
    check_folds(dealt, counts, folds=folds)
    return dealt


def read_folds(path: str | Path, counts: Mapping[str, int], *, folds: int) -> dict[str, int]:
    """Folds of the user's own, `speaker fold` a line; fold 0 trains every time.

    Args:
        path: the file.
        counts: speaker -> number of utterances; each has to be in the file, and no other.
        folds: how many there have to be.

    Raises:
        UserError: missing or malformed, a speaker in two folds, speakers that are not those of the data, another number
            of folds, and as ``check_folds``; names file and line.
    """
    file = Path(path)
    table = require_table(file, "`speaker fold`, folds counted from 1")
    for speaker, (line, fold) in table.items():
        if not fold.isdecimal() or int(fold) > folds:
            raise UserError(
                f"{file}:{line}: found fold {fold!r} of {speaker!r}, expected a number from 1 to folds={folds}, or "
                f"{ALWAYS_TRAINS} for a speaker who trains every time"
            )
        if speaker not in counts:
            raise UserError(f"{file}:{line}: {speaker!r} is no speaker of the data; drop the line or correct the name")
    missing = sorted(counts.keys() - table.keys())
    if missing:
        raise UserError(
            f"{file}: {len(missing)} of {len(counts)} speakers of the data are not in it (first {missing[0]!r}); "
            f"give each a fold, or {ALWAYS_TRAINS} to train every time"
        )
    found = {speaker: int(fold) for speaker, (_, fold) in table.items()}
    check_folds(found, counts, folds=folds, where=f"{file}: ")
    return found


def check_folds(found: Mapping[str, int], counts: Mapping[str, int], *, folds: int, where: str = "") -> None:
    """Refuse folds of which one makes no trials of both kinds.

    Raises:
        UserError: a fold of fewer than two speakers, or none of them with two utterances.
    """
    speakers = Counter(found.values())
    with_two = Counter(fold for speaker, fold in found.items() if counts[speaker] > 1)
    for fold in range(1, folds + 1):
        if speakers[fold] < 2 or not with_two[fold]:
            raise UserError(
                f"{where}fold {fold} of {folds} has {speakers[fold]} speakers, {with_two[fold]} of them with two "
                "utterances or more; its trials need two speakers, and two utterances of one of them: lower folds"
            )
