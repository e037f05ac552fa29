"""The lines of score files as text, thousands at once: bytes in columns of fixed width, whose padding is deleted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.system.columns import padded_fields

LINES = 1 << 14
"""Formatted at a time: a megabyte or two of text."""

LONGEST = 128
"""Bytes of an utterance id up to which columns of fixed width are worth it."""

LARGEST = 1000.0
"""Scores of this size and above are formatted one by one."""

DECIMALS = 6

_PAD = b"\0"
_LABELS = (" nontarget\n", " target\n")
_THREE = np.array([f"{number:03}".encode() for number in range(1000)]).view(np.uint8).reshape(1000, 3)
_TRIMMED = np.array([f"{number}".rjust(3, "\0").encode() for number in range(1000)]).view(np.uint8).reshape(1000, 3)


def score_lines(trials: Trials, scores: np.ndarray, *, labelled: bool) -> Iterator[bytes]:
    """The lines `enrol test score`, with six decimals, of trials; byte for byte those of ``%.6f``.

    Args:
        scores: finite floats, shape (trials,).
        labelled: put `target` or `nontarget` behind each.
    """
    names = _ids(trials) if len(trials) else None
    enrol, test = trials.numbered
    ends = np.array([label.encode() for label in (_LABELS if labelled else ("\n",))])
    ends = ends.view(np.uint8).reshape(len(ends), -1)
    for start in range(0, len(trials), LINES):
        rows = slice(start, start + LINES)
        target = trials.target[rows].astype(np.intp) if labelled else np.zeros(len(trials.target[rows]), np.intp)
        if names is None or not (np.abs(scores[rows]) < LARGEST - 1).all():
            yield _one_by_one(trials, scores, rows, labelled=labelled)
            continue
        parts = [names[enrol[rows]], names[test[rows]], decimals(scores[rows].astype(np.float64)), ends[target]]
        yield np.concatenate(parts, axis=1).tobytes().translate(None, _PAD)


def decimals(scores: np.ndarray) -> np.ndarray:
    """The text of numbers below 999 with six decimals, uint8 of shape (scores, 11), zeros where there is no sign.

    Rounded as ``%.6f`` rounds, by the exact value of the float: the product by a million is rounded itself, so where
    it lies within a thousandth of a half that formatting decides.
    """
    scaled = np.abs(scores) * 10.0**DECIMALS
    whole = np.rint(scaled).astype(np.int64)
    for row in np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-3).tolist():
        whole[row] = int(f"{abs(scores[row]):.{DECIMALS}f}".replace(".", ""))
    thousandths, low = np.divmod(whole, 1000)
    units, high = np.divmod(thousandths, 1000)
    text = np.empty((len(scores), 11), np.uint8)
    text[:, 0] = np.where(np.signbit(scores), ord("-"), 0)
    text[:, 1:4], text[:, 4], text[:, 5:8], text[:, 8:] = _TRIMMED[units], ord("."), _THREE[high], _THREE[low]
    return text


def _ids(trials: Trials) -> np.ndarray | None:
    """The bytes of each id and a blank, uint8 of shape (utterances, longest); None where one is too long for it."""
    content = "".join([f"{name} \n" for name in trials.names]).encode()
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    begins = np.append(0, ends[:-1] + 1)
    if (ends - begins).max() > LONGEST or _PAD in content:
        return None
    return padded_fields(content, begins, ends - begins)


def _one_by_one(trials: Trials, scores: np.ndarray, rows: slice, *, labelled: bool) -> bytes:
    columns = trials.enrol[rows], trials.test[rows], scores[rows].tolist(), trials.target[rows].tolist()
    return "".join(
        f"{enrol} {test} {score:.{DECIMALS}f}{_LABELS[target] if labelled else chr(10)}"
        for enrol, test, score, target in zip(*columns, strict=True)
    ).encode()
