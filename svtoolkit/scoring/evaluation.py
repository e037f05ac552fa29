"""All metrics of a score file in one dict: what `svt evaluate` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.bootstrap import Metric, bootstrap_intervals, trial_speakers
from svtoolkit.scoring.calibration import cllr, fit_calibration, min_cllr_from_ranks
from svtoolkit.scoring.metrics import (
    RankedScores,
    act_dcf_from_rates,
    eer_from_rates,
    min_dcf_from_rates,
    point_at_fa_rate,
    point_at_threshold,
)
from svtoolkit.scoring.score_file import align_scores, read_scores

PRIORS = (0.01, 0.05)
"""Target priors of the reported minDCF."""


METRICS: tuple[Metric, ...] = (eer_from_rates, *(partial(min_dcf_from_rates, p_target=prior) for prior in PRIORS))
METRIC_NAMES = ("eer", *(f"min_dcf_{prior:g}" for prior in PRIORS))
"""What systems are judged by, less is better."""

CHANCE = 0.05
"""An EER this near to one half is that of scores drawn by lot."""


def judge_eer(result: Mapping[str, Any]) -> str | None:
    """A sentence about an equal error rate that cannot be used as it is; None where there is nothing to say.

    Args:
        result: with ``eer`` and, where there is one, ``eer_interval``, as ``evaluate_scores`` returns them.
    """
    eer = result["eer"]
    low, high = result.get("eer_interval") or (None, None)
    in_words = f"an EER of {100 * eer:.2f} %"
    if abs(eer - 0.5) <= CHANCE:
        return (
            f"{in_words} is chance: the scores say nothing of the speakers; train longer, or look whether audio, "
            "utt2spk and trials belong together"
        )
    if eer > 0.5:
        return f"{in_words} is worse than chance: scores or labels are the wrong way round; a higher score means target"
    if low is not None and high is not None and low <= 0.5 <= high:
        return f"{in_words} cannot be told from chance, 50 %, by so few speakers: evaluate on more of them"
    return None


def scored_part(trials: Trials, scores_path: str) -> Trials:
    """The trials of a list for which a score file has scores."""
    enrol, test, _ = read_scores(scores_path)
    scored = set(zip(enrol, test, strict=True))
    kept = [row for row, pair in enumerate(zip(trials.enrol, trials.test, strict=True)) if pair in scored]
    if not kept:
        raise UserError(
            f"{scores_path}: has no score for any of the {len(trials)} trials; give the trial list that was scored"
        )
    return trials.take(np.array(kept))


def evaluate_scores(
    scores_path: str,
    trials: Trials,
    *,
    utt2spk: Mapping[str, str] | None,
    resamples: int,
    confidence: float,
    seed: int,
    fa_rate: float | None = None,
    allow_missing: bool = False,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Evaluate a score file on its trial list.

    Args:
        utt2spk: speakers of the trials; None: no bootstrap interval.
        resamples, confidence, seed: of the bootstrap over speakers; 0 resamples: no interval.
        fa_rate: false-alarm rate of the operating point; None: where misses and false alarms are equally frequent.
        allow_missing: leave out trials without a score, and say how many they are.
        progress: of the bootstrap: called with the number of resamples made since its last call.

    Returns:
        eer, eer_threshold, eer_interval (or None), confidence, min_dcf {prior: cost}, min_dcf_intervals {prior: bounds}
        (or None), act_dcf {prior: cost} and cllr (of the scores taken as natural-log likelihood ratios), min_cllr,
        trials, targets, nontargets, missing, operating_point (name, threshold, p_miss, p_fa), calibration (scale,
        offset; None where all scores are equal).

    Raises:
        UserError: scores and list do not fit each other, one class is empty, too few trials for ``fa_rate``.
    """
    kept = scored_part(trials, scores_path) if allow_missing else trials
    targets = int(np.count_nonzero(kept.target))
    if targets in (0, len(kept)):
        name, other = ("target", "nontarget") if targets else ("nontarget", "target")
        raise UserError(
            f"{scores_path}: all {len(kept)} trials are {name} trials; an error rate needs both kinds: add {other} "
            f"trials to the list, {'of two speakers' if targets else 'of two utterances of one speaker'}, and score it"
        )
    scores = align_scores(kept, scores_path)
    ranked = RankedScores.rank(scores, kept.target)
    rates = ranked.error_rates()
    eer, threshold = eer_from_rates(rates)
    nontargets = int(np.count_nonzero(~kept.target))
    point = point_at_threshold(rates, threshold)
    if fa_rate is not None:
        point = point_at_fa_rate(rates, fa_rate, nontargets)
    intervals: list[list[float]] = []
    if utt2spk is not None and resamples:
        sides = trial_speakers(kept, utt2spk)
        bounds = bootstrap_intervals(
            scores,
            *sides,
            kept.target,
            METRICS,
            resamples=resamples,
            confidence=confidence,
            seed=seed,
            progress=progress,
        )
        intervals = [list(each) for each in bounds]
    return {
        "eer": eer,
        "eer_threshold": threshold,
        "eer_interval": intervals[0] if intervals else None,
        "confidence": confidence,
        "min_dcf": {f"{prior:g}": min_dcf_from_rates(rates, p_target=prior)[0] for prior in PRIORS},
        "min_dcf_intervals": dict(zip(map("{:g}".format, PRIORS), intervals[1:], strict=True)) if intervals else None,
        "act_dcf": {f"{prior:g}": act_dcf_from_rates(rates, p_target=prior) for prior in PRIORS},
        "cllr": cllr(scores, kept.target),
        "min_cllr": min_cllr_from_ranks(ranked),
        "trials": len(kept),
        "targets": targets,
        "nontargets": nontargets,
        "missing": len(trials) - len(kept),
        "operating_point": {"name": "eer" if fa_rate is None else f"fa_rate={fa_rate:g}", **point._asdict()},
        "calibration": asdict(fit_calibration(scores, kept.target)) if np.ptp(scores) else None,
    }
