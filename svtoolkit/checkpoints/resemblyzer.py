"""Resemblyzer's pretrained.pt, or any encoder that Real-Time-Voice-Cloning trained: a file of torch.save alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from svtoolkit.checkpoints.foreign_file import glance, read_weights
from svtoolkit.checkpoints.layout import Layout, Part, rename_to_ours
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config.front_ends import Resemblyzer40Config
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.system.regular_file import is_regular

WEIGHTS, STATE = "pretrained.pt", "model_state"
HEADS = ("similarity_weight", "similarity_bias")
"""Weights of the loss."""

HIDDEN, LAYERS = 256, 3

LAYOUT = Layout(
    "encoder",
    "lstm and linear",
    (
        *(Part("lstm.", "lstm.", rf"(weight|bias)_[ih]h_l{layer}") for layer in range(LAYERS)),
        Part("embedding.", "linear.", "(weight|bias)"),
    ),
)


def find_weights(path: Path) -> Path | None:
    """The file itself, or pretrained.pt of a folder; None: it holds no LSTM with the weights of the GE2E loss."""
    file = path / WEIGHTS if path.is_dir() else path
    if not is_regular(file):
        return None
    state = (glance(file) or {}).get(STATE)
    if not isinstance(state, Mapping) or HEADS[0] not in state:
        return None
    return file if any(str(name).startswith("lstm.") for name in state) else None


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names; sizes and features are those of the package, as the file says none.

    Raises:
        UserError: damage, weights that are missing, not known or of another size.
    """
    found = read_weights(weights).weights
    ours = rename_to_ours({name: found[name] for name in found if name not in HEADS}, [LAYOUT], "Resemblyzer")
    features = Resemblyzer40Config()
    first, last = ours.get("lstm.weight_ih_l0"), ours.get("embedding.weight")
    expected = (4 * HIDDEN, features.num_bins)
    if first is None or tuple(first.shape) != expected or last is None or last.ndim != 2:
        shape = None if first is None else tuple(first.shape)
        raise UserError(f"lstm.weight_ih_l0 is {shape}, expected {expected}: {HIDDEN} units, {features.num_bins} bins")
    model: dict[str, Any] = {"name": "ge2e_lstm", "num_bins": features.num_bins, "embedding_dim": len(last)}
    training = {"toolkit": "Resemblyzer", "release": weights.name}
    return ours, ModelDescription(complete_model(model), features, training)
