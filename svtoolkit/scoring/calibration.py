"""Cost of log-likelihood ratios, and the part of it that no recalibration can remove.

N. Brümmer and J. du Preez, "Application-independent evaluation of speaker detection", Computer Speech & Language
20 (2006) 230-275. Both costs are in bits: 0 is perfect, 1 is what a detector earns that always says "no idea".
"""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import isotonic_regression

from svtoolkit.scoring.metrics import check_scores


def cllr(llr: np.ndarray, target: np.ndarray) -> float:
    """Cost of log-likelihood ratios: both the ranking and the scale of the scores count.

    Cllr = 1/2 mean over targets of log2(1 + exp(-llr)) + 1/2 mean over non-targets of log2(1 + exp(llr)).

    Args:
        llr: natural logarithms of likelihood ratios, shape (trials,); infinite values are allowed, and a wrong
            one costs infinitely much.
        target: true for target trials; shape (trials,).

    Raises:
        UserError: different lengths, NaN, a class without trials.
    """
    llr, target = check_scores(llr, target, finite=False)
    bits_targets = np.logaddexp(0.0, -llr[target]).mean() / np.log(2)
    bits_nontargets = np.logaddexp(0.0, llr[~target]).mean() / np.log(2)
    return float(bits_targets + bits_nontargets) / 2


def min_cllr(scores: np.ndarray, target: np.ndarray) -> float:
    """The least Cllr that a non-decreasing map of the scores can reach: what discrimination alone costs.

    The best map is found by pool-adjacent-violators; it takes equal scores to equal ratios. Perfectly separated
    scores cost 0 (their best ratios are infinite and right), useless ones 1.

    Args:
        scores: higher means rather the same speaker; shape (trials,).
        target: true for target trials; shape (trials,).

    Raises:
        UserError: different lengths, scores that are not finite numbers, a class without trials.
    """
    scores, target = check_scores(scores, target)
    _, place = np.unique(scores, return_inverse=True)
    targets = np.bincount(place, weights=target)
    nontargets = np.bincount(place, weights=~target)
    trials = targets + nontargets
    posterior = np.clip(isotonic_regression(targets / trials, sample_weight=trials), 0.0, 1.0)
    # posterior odds = prior odds * likelihood ratio; a level without targets is never divided by, nor one without
    # non-targets, so the infinite ratios at both ends need no special case.
    prior_odds = targets.sum() / nontargets.sum()
    with_targets, with_nontargets = targets > 0, nontargets > 0
    share = posterior[with_targets]
    bits_targets = np.log2(1 + prior_odds * (1 - share) / share) @ targets[with_targets] / targets.sum()
    share = posterior[with_nontargets]
    bits_nontargets = np.log2(1 + share / (1 - share) / prior_odds) @ nontargets[with_nontargets]
    return float(bits_targets + bits_nontargets / nontargets.sum()) / 2
