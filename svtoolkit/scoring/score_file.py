"""Score files: `enrol test score`, one trial per line; read with a label behind it, too, as WeSpeaker writes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from svtoolkit.data.trials import DIGITS, LABELS, Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import first_of
from svtoolkit.scoring.score_lines import score_lines
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.columns import read_columns
from svtoolkit.system.plain_data import MalformedError, read_text
from svtoolkit.system.regular_file import is_regular

FORM = "`enrol test score` or `enrol test score target|nontarget`"

LABEL_WORDS = {**LABELS, **DIGITS}


FORMATS = ("kaldi", "wespeaker")
"""`enrol test score`; `enrol test score target|nontarget`."""


def write_scores(path: str | Path, trials: Trials, scores: np.ndarray, *, layout: str = "kaldi") -> None:
    """Write the scores of trials with six decimals; the file is replaced in one step.

    Args:
        path: the file to write.
        trials: the pairs, in the order of the lines.
        scores: finite floats, shape (trials,).
        layout: one of ``FORMATS``.

    Raises:
        UserError: another number of scores than trials, NaN or infinity, an utterance id that is empty or holds a
            space.
    """
    scores = np.asarray(scores)
    if scores.shape != (len(trials),):
        raise UserError(f"{path}: {len(trials)} trials have scores of shape {scores.shape}; expected one per trial")
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        enrol, test = trials.enrol[bad[0]], trials.test[bad[0]]
        raise UserError(
            f"{path}: {len(bad)} scores are NaN or infinite (the first is that of `{enrol} {test}`); "
            "nothing was written; drop these trials or look for their missing embeddings"
        )
    names = trials.names
    if " ".join(names).split() != names:
        bad_name = next(name for name in names if name.split() != [name])
        raise UserError(f"{path}: the utterance id {bad_name!r} is empty or holds a space; expected none in it")
    with atomic_write(path, "wb") as stream:
        stream.writelines(score_lines(trials, scores, labelled=layout == "wespeaker"))


class _Columns(NamedTuple):
    """A score file of plain lines.

    Attributes:
        names: utterances, in the order in which they appear on the enrolment side, then the test side.
        enrol, test: places in ``names``, shape (lines,).
        scores: float64, shape (lines,).
        target: bool, shape (lines,); None where the lines have no label.
    """

    names: list[str]
    enrol: np.ndarray
    test: np.ndarray
    scores: np.ndarray
    target: np.ndarray | None


def _plain_scores(path: str | Path) -> _Columns | None:
    """None where a line is not plain, or has something wrong in it."""
    if not is_regular(path):
        return None
    content = Path(path).read_bytes()
    for count in (3, 4):
        if (columns := read_columns(content, count)) is not None:
            break
    else:
        return None
    try:
        scores = columns.numbers(2)
    except ValueError:
        return None
    labels = columns.places(3, list(LABEL_WORDS)) if count == 4 else None
    if not np.isfinite(scores).all() or (count == 4 and labels is None):
        return None
    target = None if labels is None else np.array(list(LABEL_WORDS.values()))[labels]
    names, [enrol, test] = columns.distinct(0, 1)
    return _Columns(names, enrol, test, scores, target)


def read_scores(path: str | Path) -> tuple[list[str], list[str], np.ndarray]:
    """Read a score file.

    Returns:
        utterance ids of the enrolment side, those of the test side, and float64 scores of shape (lines,).

    Raises:
        UserError: missing or empty file, a line of another form, a score that is not a finite number; names file and
            line.
    """
    if (plain := _plain_scores(path)) is not None:
        enrol, test = (list(map(plain.names.__getitem__, side.tolist())) for side in (plain.enrol, plain.test))
        return enrol, test, plain.scores
    enrol, test, scores = [], [], []
    for line in _score_lines(Path(path)):
        enrol.append(line.enrol)
        test.append(line.test)
        scores.append(line.score)
    return enrol, test, np.array(scores)


def align_scores(trials: Trials, path: str | Path) -> np.ndarray:
    """The scores of a file in the order of a trial list, matched by the pair (enrol, test).

    A pair may be listed, and scored, more than once, as in some published lists, as long as its scores agree.

    Args:
        trials: the list to score; labels in the file have to agree with its own.
        path: a score file.

    Returns:
        float64 scores, shape (trials,).

    Raises:
        UserError: trials without a score, scores without a trial, two different scores of one pair, another label, and
            what :func:`read_scores` refuses; names the first of them and their number.
    """
    plain = _plain_scores(path)
    if plain is not None and _is_of(plain, trials):
        return plain.scores
    file = Path(path)
    lines: dict[tuple[str, str], tuple[int, float]] = {}
    labels: dict[tuple[str, str], bool] = {}
    for number, enrol, test, score, label in _score_lines(file):
        if label is not None:
            labels[enrol, test] = label
        first, other = lines.setdefault((enrol, test), (number, score))
        if other != score:
            raise UserError(
                f"{file}:{number}: `{enrol} {test}` scores {score}, but {other} on line {first}; "
                "expected one score per pair: two runs may have been joined into one file"
            )
    pairs = list(zip(trials.enrol, trials.test, strict=True))
    missing = [pair for pair in pairs if pair not in lines]
    if missing:
        raise UserError(
            f"{file}: {len(missing)} of {len(pairs)} trials have no score: {_name(missing)}; score this list again"
        )
    extra = lines.keys() - set(pairs)
    if extra:
        names = _name(sorted(extra, key=lambda pair: lines[pair][0]))
        raise UserError(
            f"{file}: {len(extra)} of {len(lines)} scored pairs are not in the trial list: {names}; "
            "give the trial list that was scored"
        )
    for pair, target in zip(pairs, trials.target.tolist(), strict=True):
        if labels.get(pair, target) != target:
            said, listed = ("target", "nontarget") if labels[pair] else ("nontarget", "target")
            raise UserError(
                f"{file}:{lines[pair][0]}: says that `{pair[0]} {pair[1]}` is a {said} trial, but the trial list says "
                f"{listed}; give the trial list that was scored"
            )
    return np.array([lines[pair][1] for pair in pairs])


def _is_of(plain: _Columns, trials: Trials) -> bool:
    """Whether a score file has these trials in their order and with their labels, and one score a pair."""
    enrol, test = trials.numbered
    if not (np.array_equal(plain.enrol, enrol) and np.array_equal(plain.test, test)):
        return False
    if plain.names != trials.names:
        return False
    if plain.target is not None and not np.array_equal(plain.target, trials.target):
        return False
    pairs = plain.enrol * len(plain.names) + plain.test
    ascending = np.sort(pairs)
    if (ascending[1:] != ascending[:-1]).all():
        return True
    order = np.argsort(pairs, kind="stable")
    again = pairs[order][1:] == pairs[order][:-1]
    scores = plain.scores[order]
    return bool((scores[1:] == scores[:-1])[again].all())


class _Line(NamedTuple):
    """One that holds a score; ``target``: None where it has no label."""

    number: int
    enrol: str
    test: str
    score: float
    target: bool | None


def _score_lines(file: Path) -> Iterator[_Line]:
    """Of a file, the lines that hold a score."""
    if not is_regular(file):
        raise UserError(f"{file}: there is no such score file; expected lines {FORM}")
    try:
        text = read_text(file)
    except MalformedError as error:
        raise UserError(f"{file}:{error.line}: is no UTF-8 text ({error}); re-encode it, or score again") from error
    found = False
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) not in (3, 4) or (len(fields) == 4 and fields[3] not in LABEL_WORDS):
            raise UserError(f"{file}:{number}: found {line!r}, expected {FORM}")
        try:
            score = float(fields[2])
        except ValueError:
            raise UserError(f"{file}:{number}: the score {fields[2]!r} is not a number; expected {FORM}") from None
        if not math.isfinite(score):
            raise UserError(
                f"{file}:{number}: the score of `{fields[0]} {fields[1]}` is {fields[2]}; "
                "expected a finite number: an embedding is broken or missing"
            )
        found = True
        yield _Line(number, fields[0], fields[1], score, LABEL_WORDS[fields[3]] if len(fields) == 4 else None)
    if not found:
        raise UserError(f"{file}: the file holds no score; expected lines {FORM}")


def _name(pairs: list[tuple[str, str]]) -> str:
    return first_of([f"`{enrol} {test}`" for enrol, test in pairs])
