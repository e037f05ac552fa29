"""The result of a score file: its metrics, and which files they are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.runs.provenance import read_record
from svtoolkit.scoring.evaluation import evaluate_scores
from svtoolkit.system.checksum import hash_file


def make_result(
    scores: str, trials: str, *, utt2spk: str | None, name: str | None = None, command: str, **options: Any
) -> dict[str, Any]:
    """Evaluate a score file.

    Args:
        scores: the file; how it was made stands in ``<scores>.yaml``, where `svt score` wrote it.
        trials: its trial list.
        utt2spk: file of the speakers of the trials; None: no intervals.
        name: of the evaluation; None: that of the folder of the score file.
        command: the command line that asked for it.
        options: of :func:`~svtoolkit.scoring.evaluation.evaluate_scores`.

    Returns:
        what `svt evaluate` writes, a mapping that JSON can hold.

    Raises:
        UserError: as :func:`~svtoolkit.scoring.evaluation.evaluate_scores`.
    """
    listed = read_trials(trials)
    speakers = read_utt2spk(utt2spk) if utt2spk else None
    return {
        "evaluation": name or Path(scores).resolve().parent.name,
        "scores": kind_of_scores(scores, read_record(f"{scores}.yaml")),
        **evaluate_scores(scores, listed, utt2spk=speakers, **options),
        "trials_sha256": hash_trials(trials),
        "trials_file": trials,
        "utt2spk_file": utt2spk,
        "scores_sha256": hash_file(Path(scores)),
        "scores_file": scores,
        "command": command,
    }


def kind_of_scores(scores: str, settings: dict[str, Any]) -> str:
    """How the scores were made; where `svt score` did not make them, the name of their file."""
    if "normalisation" not in settings:
        return Path(scores).name
    if settings["normalisation"] != "none":
        parts = (settings.get("backend_kind"), settings["normalisation"])
        return ", ".join(str(part) for part in parts if part)
    plain = settings.get("backend_kind") or "cosine"
    return f"{plain}, mean subtracted" if settings.get("subtract_mean") else str(plain)
