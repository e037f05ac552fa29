"""Result files of `svt evaluate`, and the scores and trials behind them, refused where they are no longer the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.data.trials import Trials, hash_trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.evaluation import scored_part
from svtoolkit.scoring.score_file import align_scores
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.plain_data import MalformedError, parse_json, read_text
from svtoolkit.system.regular_file import is_regular

TEXTS = ("evaluation", "scores", "scores_file", "scores_sha256", "trials_file", "trials_sha256")
"""Keys of a result that say what it is of."""


@dataclass(frozen=True)
class System:
    """One scored list.

    Attributes:
        result: as `svt evaluate` writes it.
        trials: those that have a score.
        scores: float64, shape (trials,).
    """

    result: dict[str, Any]
    trials: Trials
    scores: np.ndarray


def read_result(path: Path) -> dict[str, Any]:
    """Read a result.

    Raises:
        UserError: missing or malformed; names file, line and key.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected a result that `svt evaluate` wrote")
    try:
        result = parse_json(read_text(path))
    except MalformedError as error:
        where = f"{path}:{error.line}" if error.line else f"{path}"
        raise UserError(f"{where}: is not JSON ({error}); run `svt evaluate` again") from error
    needed = {*TEXTS, "eer", "missing"}
    missing = needed - result.keys() if isinstance(result, dict) else needed
    if missing:
        raise UserError(f"{path}: lacks {', '.join(sorted(missing))}; run `svt evaluate` again")
    speakers = {"utt2spk_file"} if result.get("utt2spk_file") is not None else set()
    for key in (*TEXTS, *speakers):
        if not isinstance(result[key], str):
            raise UserError(f"{path}: {key} is {result[key]!r:.80}, expected text; run `svt evaluate` again")
    if type(result["missing"]) is not int or result["missing"] < 0:
        raise UserError(
            f"{path}: missing is {result['missing']!r:.80}, expected a number of trials; run `svt evaluate` again"
        )
    return result


def read_system(result: dict[str, Any]) -> System:
    """The scores and trials behind a result.

    Raises:
        UserError: a file is missing, or has changed since.
    """
    trials_file, scores_file = result["trials_file"], result["scores_file"]
    if hash_trials(trials_file) != result["trials_sha256"]:
        raise UserError(f"{trials_file}: has changed since {scores_file} was evaluated; run `svt evaluate` again")
    trials = read_trials(trials_file)
    if is_regular(scores_file) and hash_file(Path(scores_file)) != result["scores_sha256"]:
        raise UserError(f"{scores_file}: has changed since it was evaluated; run `svt evaluate` again")
    if result["missing"]:
        trials = scored_part(trials, scores_file)
    return System(result, trials, align_scores(trials, scores_file))
