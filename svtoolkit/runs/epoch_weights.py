"""The weights of finished epochs, of which the newest and the best are kept for averaging."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from svtoolkit.errors import UserError
from svtoolkit.runs.run_history import of_last_stage
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import check_regular

_NAME = re.compile(r"epoch-(\d{4})\.safetensors")


def weights_path(folder: str | Path, epoch: int) -> Path:
    return Path(folder) / f"epoch-{epoch:04d}.safetensors"


def save_epoch_weights(folder: str | Path, epoch: int, weights: Mapping[str, Tensor]) -> Path:
    """Write the network's weights after an epoch (counted from 1)."""
    path = weights_path(folder, epoch)
    with atomic_write(path, "wb") as stream:
        stream.write(safetensors.torch.save({name: tensor.contiguous().cpu() for name, tensor in weights.items()}))
    return path


def load_epoch_weights(path: Path) -> dict[str, Tensor]:
    check_regular(path)
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f"{path}: cannot be read ({error}); choose other epochs to average") from error


def kept_epochs(folder: str | Path) -> list[int]:
    """Epochs whose weights are there, ascending."""
    matches = (_NAME.fullmatch(path.name) for path in Path(folder).glob("epoch-*.safetensors"))
    return sorted(int(match[1]) for match in matches if match)


def best_epochs(records: Sequence[Mapping[str, Any]], count: int) -> list[int]:
    """The epochs of lowest validation EER, best first; the earlier one where two are equal."""
    validated = [record for record in records if record.get("validation_eer") is not None]
    ranked = sorted(validated, key=lambda record: (record["validation_eer"], record["epoch"]))
    return [record["epoch"] for record in ranked[:count]]


def drop_epoch_weights(
    folder: str | Path, records: Sequence[Mapping[str, Any]], *, keep_last: int, keep_best: int
) -> None:
    """Delete all weights but those of the newest ``keep_last`` and the best ``keep_best`` epochs.

    Weights of epochs that are not recorded yet stay: a resumed run writes them again.
    """
    finished = max((record["epoch"] for record in records), default=0)
    epochs = [epoch for epoch in kept_epochs(folder) if epoch <= finished]
    kept = {*epochs[::-1][:keep_last], *best_epochs(records, keep_best)}
    for epoch in epochs:
        if epoch not in kept:
            weights_path(folder, epoch).unlink(missing_ok=True)


def choose_epochs(folder: str | Path, records: Sequence[Mapping[str, Any]], *, choose: str, num: int) -> list[int]:
    """The ``num`` last or best epochs whose weights are there, or as many as there are.

    Of a run in two stages, those of the stage that it is in: the others have weights of other shapes.

    Raises:
        UserError: none is there, or ``choose`` is neither last nor best.
    """
    if choose not in ("last", "best"):
        raise UserError(f"choose is {choose!r}, expected last, best or ema")
    if num < 1:
        raise UserError(f"num is {num}, expected 1 or more epochs to average")
    of_last = [record["epoch"] for record in of_last_stage(records)]
    before = [record["epoch"] for record in records if record["epoch"] not in of_last]
    there = [epoch for epoch in kept_epochs(folder) if epoch not in before]
    if choose == "last":
        epochs = there[-num:]
    else:
        epochs = sorted(best_epochs([record for record in records if record["epoch"] in there], num))
    if not epochs:
        raise UserError(
            f"{folder}: no epoch can be averaged (choose={choose}); train with trainer.keep_last or trainer.keep_best "
            "above 0"
        )
    return epochs
