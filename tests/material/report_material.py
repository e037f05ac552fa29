"""Results, scores and a training history that the tests of the report share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svtoolkit.scoring.metrics import equal_error_rate


class Scored(NamedTuple):
    """Scores and target labels, both of shape (trials,)."""

    scores: np.ndarray
    target: np.ndarray


def draw_scores(trials: int, *, distance: float = 3.0, seed: int = 0) -> Scored:
    """Normally distributed scores, target trials ``distance`` standard deviations above the others."""
    rng = np.random.default_rng(seed)
    target = np.arange(trials) % 2 == 0
    return Scored(rng.normal(size=trials) + distance * target, target)


def make_result(scored: Scored, evaluation: str = "eval", scores: str = "as-norm", **changes: Any) -> dict[str, Any]:
    eer, threshold = equal_error_rate(*scored)
    result = {
        "evaluation": evaluation,
        "scores": scores,
        "eer": eer,
        "eer_threshold": threshold,
        "eer_interval": [0.025, 0.038],
        "confidence": 0.95,
        "min_dcf": {"0.05": 0.2, "0.01": 0.31},
        "cllr": 1.2,
        "min_cllr": 0.12,
        "trials": len(scored.scores),
        "targets": int(scored.target.sum()),
        "nontargets": int((~scored.target).sum()),
        "missing": 3,
        "trials_sha256": "5e" * 32,
    }
    return result | changes


def make_history(steps: int = 40, every: int = 10) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        records.append(
            {
                "kind": "step",
                "step": step,
                "epoch": 1 + (step - 1) // every,
                "loss": 6.0 / step,
                "accuracy": step / (2 * steps),
                "accuracy_no_margin": step / steps,
                "lr": 0.1 * 0.9**step,
                "margin": 0.2 * step / steps,
                "data_wait": 0.03,
                "seconds": 0.5 * step,
                "unknown": "ignored",
            }
        )
        if step % every == 0:
            records.append(
                {
                    "kind": "epoch",
                    "epoch": step // every,
                    "step": step,
                    "validation_eer": 1 / (2 + step),
                    "validation_min_dcf": 0.5,
                    "peak_memory_bytes": 1.5 * 2**30,
                }
            )
    return records
