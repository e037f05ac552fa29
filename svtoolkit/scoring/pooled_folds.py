"""Scores of the folds of a cross-validation as one list and one score file a system, with the figures of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.data.fold_dirs import EVAL, TRIALS, FoldedData, write_pooled
from svtoolkit.data.trials import Trials, read_trials
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.fold import Fold
from svtoolkit.scoring.result import make_result
from svtoolkit.scoring.score_file import align_scores, write_scores
from svtoolkit.scoring.systems import System
from svtoolkit.system.plain_data import write_json


def pool_folds(
    out: Path,
    folds: Sequence[Fold],
    systems: Mapping[str, System],
    data: FoldedData,
    *,
    name: str,
    command_line: str,
    resamples: int,
    confidence: float,
) -> dict[str, dict[str, Any]]:
    """Write ``eval`` and ``scores`` of a cross-validation from those of its folds.

    Args:
        out: its folder.
        folds: its trainings; of several seeds each is a trial of its own of the same speakers.
        systems: that each fold was scored with.
        data: that was divided.
        name: of the results.
        resamples: bootstrap resamples of the speakers; 0: no intervals.
        confidence: share of resamples within the intervals.

    Returns:
        system -> its figures.
    """
    several = len({fold.seed for fold in folds}) > 1
    lists: dict[int, Trials] = {fold.number: read_trials(fold.trials) for fold in folds}
    parts = [(f"seed{fold.seed}/" if several else "", lists[fold.number]) for fold in folds]
    pooled = write_pooled(out / EVAL, data, parts)
    figures = {}
    for system, kind in systems.items():
        files = [fold.scores(system) for fold in folds]
        scores = [align_scores(trials, file) for file, (_, trials) in zip(files, parts, strict=True)]
        path = out / "scores" / system
        write_scores(path, pooled, np.concatenate(scores))
        facts = {"backend_kind": kind.backend, "normalisation": kind.normalisation}
        write_record(
            path.with_name(f"{system}.yaml"), command_line, facts | {"folds": list(map(str, files)), "out": str(path)}
        )
        result = make_result(
            str(path), str(out / EVAL / TRIALS), utt2spk=str(out / EVAL / "utt2spk"), name=name, command=command_line,
            resamples=resamples, confidence=confidence, seed=0,
        )  # fmt: skip
        write_json(path.with_name(f"{system}.json"), result)
        figures[system] = {
            key: result[key] for key in ("eer", "eer_interval", "min_dcf", "min_dcf_intervals", "trials")
        }
    return figures
