from __future__ import annotations

import numpy as np

from svtoolkit.scoring.score_counts import BINS, count_scores


def test_every_trial_is_counted_where_its_score_lies() -> None:
    targets, nontargets = np.array([0.5, 0.9, 1.0]), np.array([-0.2, 0.0, 0.1, 0.1])
    counts = count_scores(targets, nontargets)
    assert (counts["low"], counts["high"]) == (-0.2, 1.0)
    assert (sum(counts["targets"]), sum(counts["nontargets"])) == (3, 4)
    assert counts["targets"][-1] == 1
    assert counts["nontargets"][0] == 1
    width = 1.2 / BINS
    assert counts["nontargets"][int((0.1 + 0.2) / width + 1e-9)] == 2


def test_equal_scores_have_a_width() -> None:
    counts = count_scores(np.ones(2), np.ones(3))
    assert counts["low"] < 1 < counts["high"]
    assert (sum(counts["targets"]), sum(counts["nontargets"])) == (2, 3)
