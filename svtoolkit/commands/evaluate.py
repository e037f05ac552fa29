"""svt evaluate: what a score file is worth."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import yaml

from svtoolkit.atomic import atomic_write
from svtoolkit.checkpoints.released import read_description, write_description
from svtoolkit.config import EvaluateConfig
from svtoolkit.data.kaldi_dir import read_utt2spk
from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.evaluation import evaluate_scores

log = logging.getLogger(__name__)


def run(config: EvaluateConfig) -> int:
    """Evaluate, write the result beside the scores, print it."""
    trials = read_trials(config.trials)
    settings = _score_settings(config.scores)
    result: dict[str, Any] = {
        "evaluation": config.name or Path(config.scores).resolve().parent.name,
        "scores": settings.get("normalisation", Path(config.scores).name).replace("none", "cosine"),
        **evaluate_scores(
            config.scores,
            trials,
            utt2spk=read_utt2spk(config.utt2spk) if config.utt2spk else None,
            resamples=config.resamples,
            confidence=config.confidence,
            seed=config.seed,
            allow_missing=config.allow_missing,
        ),
        "trials_sha256": hash_trials(config.trials),
        "trials_file": config.trials,
        "scores_file": config.scores,
    }
    with atomic_write(config.out or f"{config.scores}.json") as stream:
        json.dump(result, stream, indent=2)
        stream.write("\n")
    if config.store_threshold:
        _store_threshold(config, settings, result)
    log.info("%s", _sentence(result))
    return 0


def _score_settings(scores: str) -> dict[str, Any]:
    path = Path(f"{scores}.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _store_threshold(config: EvaluateConfig, settings: dict[str, Any], result: dict[str, Any]) -> None:
    """`svt verify` compares plain cosines, so that only their threshold makes sense in the model."""
    if settings.get("normalisation") != "none" or settings.get("subtract_mean"):
        raise UserError(
            f"{config.scores}: store_threshold needs plain cosine scores (normalisation=none, no mean subtracted) "
            "with the settings that `svt score` wrote beside them; evaluate such a file"
        )
    assert config.store_threshold is not None
    description = read_description(config.store_threshold)
    description.verification = {
        "threshold": result["eer_threshold"],
        "eer": result["eer"],
        "evaluation": result["evaluation"],
        "trials_sha256": result["trials_sha256"],
    }
    write_description(config.store_threshold, description)


def _sentence(result: dict[str, Any]) -> str:
    interval = ""
    if result["eer_interval"]:
        low, high = (100 * bound for bound in result["eer_interval"])
        interval = f" ({100 * result['confidence']:g} % interval {low:.2f} to {high:.2f})"
    costs = ", ".join(f"minDCF({prior}) {cost:.4f}" for prior, cost in result["min_dcf"].items())
    return (
        f"{result['evaluation']}, {result['scores']}: EER {100 * result['eer']:.2f} %{interval}, {costs}, "
        f"Cllr {result['cllr']:.3f}, minCllr {result['min_cllr']:.3f}, threshold {result['eer_threshold']:.4f}, "
        f"{result['trials']} trials, {result['missing']} missing"
    )
