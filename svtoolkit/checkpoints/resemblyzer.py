"""Resemblyzer's ``pretrained.pt``, and any other of Real-Time-Voice-Cloning's encoder, as a released model of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svtoolkit.checkpoints.foreign_file import read_weights
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.config.front_ends import Resemblyzer40Config
from svtoolkit.errors import UserError
from svtoolkit.models import build_model

NETWORK = "ge2e_lstm"
_OF_THE_LOSS = ("similarity_weight", "similarity_bias")


def convert_resemblyzer(path: str | Path, folder: str | Path) -> Path:
    """Write its weights and what they are as model.safetensors and model.yaml; returns the folder.

    Raises:
        UserError: the file cannot be read, or holds other weights.
    """
    found = read_weights(path).weights
    weights = {
        name.replace("linear.", "embedding."): value for name, value in found.items() if name not in _OF_THE_LOSS
    }
    features = Resemblyzer40Config()
    model: dict[str, Any] = {"name": NETWORK, "num_bins": features.num_bins, "embedding_dim": 256}
    expected = {name: tuple(value.shape) for name, value in build_model(**model).state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    if shapes != expected:
        names = sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name))
        raise UserError(
            f"{path}: holds no encoder of Resemblyzer ({', '.join(names)[:200]} are missing, not known or of another "
            "shape); expected the pretrained.pt of its package"
        )
    return write_released(folder, weights, ModelDescription(model, features))
