"""What a cross-validation trains: each fold with each seed, and what is known of it so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from svtoolkit.data.fold_dirs import EVAL, TRIALS
from svtoolkit.system.plain_data import write_json
from svtoolkit.system.regular_file import is_regular


class Fold(NamedTuple):
    """One training of one fold of a cross-validation, or the ensemble of its trainings.

    Attributes:
        number: of the fold, from 1.
        seed: of the training; None: the ensemble.
        data: folder with its data directories.
        exp_dir: of the run, with its scores.
    """

    number: int
    seed: int | None
    data: Path
    exp_dir: Path

    @property
    def trials(self) -> Path:
        return self.data / EVAL / TRIALS

    def scores(self, system: str) -> Path:
        """The score file of a system."""
        return self.exp_dir / "scores" / system

    @property
    def known(self) -> dict[str, Any]:
        """What it gave so far; empty: nothing."""
        return json.loads(self._noted.read_text(encoding="utf-8")) if is_regular(self._noted) else {}

    def note(self, known: Mapping[str, Any]) -> None:
        """Keep what it gave so far."""
        write_json(self._noted, known)

    @property
    def _noted(self) -> Path:
        return self.exp_dir / "fold.json"


def folder_of(out: Path, number: int) -> Path:
    """Of a fold of the cross-validation in ``out``."""
    return out / f"fold{number}"


def trainings(out: Path, folds: int, seeds: Sequence[int]) -> list[Fold]:
    """All trainings, those of one seed together."""
    return [
        Fold(number, seed, folder_of(out, number), folder_of(out, number) / f"seed{seed}")
        for seed in seeds
        for number in range(1, folds + 1)
    ]


def ensembles(out: Path, folds: int, seeds: Sequence[int]) -> list[Fold]:
    """Of each fold its trainings of all seeds as one."""
    name = "-".join(map(str, ["ensemble", *seeds]))
    return [Fold(number, None, folder_of(out, number), folder_of(out, number) / name) for number in range(1, folds + 1)]
