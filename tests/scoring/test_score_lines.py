"""Lines made thousands at a time are, byte for byte, those of ``%.6f``."""

from __future__ import annotations

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.scoring import score_lines as score_lines_module
from svtoolkit.scoring.score_lines import score_lines

HALVES = (2 * np.arange(-2000, 2000) + 1) * 5e-7
"""Decimals that end in 5, whose floats lie on one side of it or the other."""


def make_scores() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=3000)
    return {
        "cosines": np.tanh(normal),
        "halves": HALVES,
        "halves in binary": np.arange(-500, 500) / 128,
        "sevenths decimals": np.round(100 * normal, 7),
        "signs of nothing": np.array([0.0, -0.0, 1e-9, -1e-9, 5e-7, -5e-7]),
        "edges": np.array([998.9999994, 998.9999996, 999.0, -999.9999999, 1e6, -1e300, 0.25, 9.9999995, 99.9999999]),
        "single": normal.astype(np.float32),
    }


@pytest.mark.parametrize("kind", make_scores())
@pytest.mark.parametrize("names", [["a-1", "b"], ["é", "一二三四"], ["a\0b", "a"], ["a" * 300, "b"]])
def test_every_line_is_that_of_python(monkeypatch: pytest.MonkeyPatch, kind: str, names: list[str]) -> None:
    monkeypatch.setattr(score_lines_module, "LINES", 1024)
    scores = make_scores()[kind]
    enrol, test = [names[row % 2] for row in range(len(scores))], [names[row % 3 == 0] for row in range(len(scores))]
    target = np.arange(len(scores)) % 5 == 0
    trials = Trials(enrol, test, target)
    listed = list(zip(enrol, test, scores.tolist(), target.tolist(), strict=True))
    plain = "".join("{} {} {:.6f}\n".format(*row[:3]) for row in listed)
    assert b"".join(score_lines(trials, scores, labelled=False)).decode() == plain
    words = "".join("{} {} {:.6f} {}\n".format(*row[:3], "target" if row[3] else "nontarget") for row in listed)
    assert b"".join(score_lines(trials, scores, labelled=True)).decode() == words


def test_no_trials_are_no_lines() -> None:
    assert list(score_lines(Trials([], [], np.array([], dtype=bool)), np.array([]), labelled=False)) == []
