"""svt evaluate: EER with its interval, minDCF, Cllr and threshold of a score file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from svtoolkit.config import EvaluateConfig
from svtoolkit.data.trials import read_trials
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import read_record
from svtoolkit.scoring.evaluation import judge_eer, scored_part
from svtoolkit.scoring.result import make_result
from svtoolkit.scoring.score_counts import count_scores
from svtoolkit.scoring.score_file import align_scores
from svtoolkit.system.output import say_next
from svtoolkit.system.plain_data import write_json
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)

BAR_DELAY = 2.0
"""Seconds before a progress bar is shown."""

ENOUGH_ERRORS = 30


def run(config: EvaluateConfig, command_line: str) -> int:
    """Evaluate, write the result beside the scores, print it."""
    if config.store_threshold is not None:
        _require_plain_cosines(config.scores, read_record(f"{config.scores}.yaml"))
        folder = _folder_of(config.store_threshold)
    draws = config.resamples if config.utt2spk else 0
    with show_progress("interval", draws, "resample", shown=draws > 0, leave=False, delay=BAR_DELAY) as progress:
        result = make_result(
            config.scores,
            config.trials,
            utt2spk=config.utt2spk,
            name=config.name,
            command=command_line,
            resamples=config.resamples,
            confidence=config.confidence,
            seed=config.seed,
            fa_rate=config.fa_rate,
            allow_missing=config.allow_missing,
            progress=progress.update,
        )
    write_json(config.out or f"{config.scores}.json", result)
    if config.fa_rate is not None:
        _warn_of_few_trials(config.fa_rate, result["nontargets"])
    if config.store_threshold is not None:
        _store_threshold(folder, result, config)
    log.info("%s", _sentence(result))
    if remark := judge_eer(result):
        log.warning("%s, %s: %s", result["evaluation"], result["scores"], remark)
    written = config.out or f"{config.scores}.json"
    say_next("svt", "report", "--results", written, "--out", str(Path(written).parent / "report"))
    return 0


def _require_plain_cosines(scores: str, settings: dict[str, Any]) -> None:
    """`svt verify` compares plain cosines, so that only their threshold makes sense in the model."""
    if settings.get("normalisation") != "none" or settings.get("subtract_mean") or settings.get("backend"):
        raise UserError(
            f"{scores}: store_threshold needs plain cosine scores, with the settings beside them, as "
            "`svt score normalisation=none` writes them (no mean subtracted, no back end); evaluate such a file"
        )


def _warn_of_few_trials(fa_rate: float, nontargets: int) -> None:
    """The rule of 30: with fewer errors than that, a rate is not within 30 % of what it seems (NIST SRE plans)."""
    if fa_rate * nontargets < ENOUGH_ERRORS:
        log.warning(
            "fa_rate=%g is %d of %d non-target trials: with fewer than %d the rate on other trials may be another; "
            "take a longer list, or `svt calibrate`",
            fa_rate, round(fa_rate * nontargets), nontargets, ENOUGH_ERRORS,
        )  # fmt: skip


def _folder_of(model: str) -> Path:
    """Refuses what can hold no threshold before any work."""
    from svtoolkit.checkpoints.released import read_description  # torch, for this alone
    from svtoolkit.checkpoints.releases import own_folder

    folder = own_folder(model)
    read_description(folder)
    return folder


def _store_threshold(folder: Path, result: dict[str, Any], config: EvaluateConfig) -> None:
    from svtoolkit.checkpoints.released import read_description, write_description

    trials = read_trials(config.trials)
    kept = scored_part(trials, config.scores) if config.allow_missing else trials
    scores = align_scores(kept, config.scores)
    description = read_description(folder)
    point = result["operating_point"]
    description.verification = {
        "threshold": point["threshold"],
        "operating_point": point["name"],
        "p_miss": point["p_miss"],
        "p_fa": point["p_fa"],
        **{key: result[key] for key in ("eer", "calibration", "targets", "nontargets", "evaluation", "trials_sha256")},
        "score_counts": count_scores(scores[kept.target], scores[~kept.target]),
    }
    write_description(folder, description)


def _sentence(result: dict[str, Any]) -> str:
    interval = ""
    if result["eer_interval"]:
        low, high = (100 * bound for bound in result["eer_interval"])
        interval = f" ({100 * result['confidence']:g} % interval {low:.2f} to {high:.2f})"
    costs = ", ".join(f"minDCF({prior}) {cost:.4f}" for prior, cost in result["min_dcf"].items())
    point = result["operating_point"]
    asked = ""
    if point["name"] != "eer":
        asked = (
            f", {point['name']} at threshold {point['threshold']:.4f}: misses {100 * point['p_miss']:.2f} %, "
            f"false alarms {100 * point['p_fa']:.2g} %"
        )
    return (
        f"{result['evaluation']}, {result['scores']}: EER {100 * result['eer']:.2f} %{interval}, {costs}, "
        f"Cllr {result['cllr']:.3f}, minCllr {result['min_cllr']:.3f}, threshold {result['eer_threshold']:.4f}{asked}, "
        f"{result['trials']} trials, {result['missing']} missing"
    )
