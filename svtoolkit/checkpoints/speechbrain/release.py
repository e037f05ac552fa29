"""A release of SpeechBrain's: hyperparams.yaml and embedding_model.ckpt beside it, or a checkpoint of a training."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from svtoolkit.checkpoints.foreign_file import read_foreign_settings, read_weights
from svtoolkit.checkpoints.layout import list_names
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.checkpoints.speechbrain import from_speechbrain
from svtoolkit.checkpoints.speechbrain.hyperparams import read_hyperparams
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.system.regular_file import is_regular

HYPERPARAMS, WEIGHTS = "hyperparams.yaml", "embedding_model.ckpt"

CHECKPOINT = "CKPT+"
"""What the folders begin with that a training saves its state in; those of 3D-Speaker begin with CKPT-."""

NOT_FOLLOWED = "the pretrained_path in it is not followed, and nothing is downloaded"


def find_weights(path: Path) -> Path | None:
    """The weights of a release: a folder with both files, the folder of a training with one checkpoint, a checkpoint
    of several, or the file of weights in any of these.

    Raises:
        UserError: one file without the other, or several checkpoints.
    """
    if path.name == WEIGHTS and is_regular(path):
        path = path.parent
    if is_regular(path / WEIGHTS):
        if _hyperparams(path) is not None:
            return path / WEIGHTS
        if path.absolute().name.startswith("CKPT-") or is_regular(path / "configuration.json"):
            return None
        raise UserError(
            f"{path / WEIGHTS}: has no {HYPERPARAMS} beside it, which says what network and features it is of; copy "
            "that of the same release or training"
        )
    if not is_regular(path / HYPERPARAMS):
        return None
    found = sorted(file for file in path.glob(f"save/{CHECKPOINT}*/{WEIGHTS}") if is_regular(file))
    if len(found) > 1:
        raise UserError(
            f"{path}: is a training with several checkpoints, {list_names([file.parent.name for file in found])}; give "
            "the folder of one of them, in save/"
        )
    if not found:
        raise UserError(
            f"{path / HYPERPARAMS}: has no {WEIGHTS} beside it, nor save/{CHECKPOINT}*/{WEIGHTS} of a training; "
            f"download it from where the former came from: {NOT_FOLLOWED}"
        )
    return found[0]


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what hyperparams.yaml says.

    Raises:
        UserError: damage, a network, features or arguments that are not known, weights that are no network's.
    """
    file = _hyperparams(weights.parent)
    assert file is not None, "found by find_weights"
    content = read_foreign_settings(file, aliases=True)
    try:
        model, features, theirs = read_hyperparams(content)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    training = {"toolkit": "SpeechBrain", "release": file.absolute().parent.name, "model": theirs}
    if isinstance(content.get("pretrained_path"), str):
        training["pretrained_path"] = content["pretrained_path"]
    ours = from_speechbrain(read_weights(weights).weights)
    return ours, ModelDescription(complete_model(model), features, training)


def _hyperparams(folder: Path) -> Path | None:
    """That of the weights in a folder; a checkpoint is two folders below that of its training."""
    if is_regular(folder / HYPERPARAMS):
        return folder / HYPERPARAMS
    whole = folder.absolute()
    above = whole.parent.parent / HYPERPARAMS
    return above if whole.name.startswith(CHECKPOINT) and is_regular(above) else None
