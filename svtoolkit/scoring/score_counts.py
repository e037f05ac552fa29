"""Score distributions in few numbers, for a model to carry: counts of trials in equal bins."""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = 40


def count_scores(targets: np.ndarray, nontargets: np.ndarray) -> dict[str, Any]:
    """Counts between the lowest and the highest score of all.

    Args:
        targets: scores of trials of one speaker, (trials,).
        nontargets: those of trials of two speakers, (trials,).

    Returns:
        low, high, targets [counts], nontargets [counts]; plain data.
    """
    both = np.concatenate([targets, nontargets])
    low, high = float(both.min()), float(both.max())
    if low == high:
        low, high = low - 0.01, high + 0.01
    counts = [np.histogram(scores, BINS, (low, high))[0].tolist() for scores in (targets, nontargets)]
    return {"low": low, "high": high, "targets": counts[0], "nontargets": counts[1]}
