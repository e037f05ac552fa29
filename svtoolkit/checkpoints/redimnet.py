"""A released file of ReDimNet (IDRnD) or ReDimNet2 (Palabra AI): one .pt with model_config and state_dict.

It is what torch.hub downloads from both repositories: b2-vox2-ft_lm.pt, b6-vb2+vox2_v0-lm.pt. Which of both it is, the
names of the weights say. ``head_activation``, which their code gives to Python's eval, is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from svtoolkit.checkpoints.foreign_file import ForeignWeights, glance, read_weights
from svtoolkit.checkpoints.layout import list_names, rename_to_ours
from svtoolkit.checkpoints.mel_spectrograms import FREE, ONLY, TRAINING, features_of, without_tables
from svtoolkit.checkpoints.redimnet_config import FIRST, SECOND, network_of
from svtoolkit.checkpoints.redimnet_names import REDIMNET, redimnet2_layout
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.checkpoints.wespeaker import release as wespeaker
from svtoolkit.config.front_ends import ReDimNetConfig, ReDimNetTFConfig
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.system.regular_file import is_regular

CONFIG, STATE = "model_config", "state_dict"
MAKERS = {FIRST: "IDRnD", SECOND: "Palabra AI"}

MARK = "backbone.stem.0.weight"
MARK_OF_SECOND = "backbone.fin_wght1d.w"
"""Weights that every one has, and every ReDimNet2."""

HEAD, TABLES = "cls_head.", "spec."
"""Beginnings of names: of the classes in training, and of the tables of the features."""

REQUIRED = ("F", "C", "stages_setup")
"""Of model_config; the others are as their classes have them, or seen from the weights."""

FEATURES: dict[str, type[ReDimNetConfig]] = {
    "pt": ReDimNetConfig,
    "pt_mel": ReDimNetConfig,
    "tf": ReDimNetTFConfig,
    "tf_mel": ReDimNetTFConfig,
}
"""By feat_type."""


def find_weights(path: Path) -> Path | None:
    """The file itself, or the only such file of a folder; None: there is none, or a WeSpeaker YAML is beside it.

    Raises:
        UserError: several such files in a folder, or a .pt file that cannot be read.
    """
    if wespeaker.find_weights(path) is not None:
        return None
    if is_regular(path):
        content = glance(path)
        if content is None and path.suffix == ".pt":
            read_weights(path)
        return path if _is_one(content) else None
    if not path.is_dir():
        return None
    found = [file for file in sorted(path.glob("*.pt")) if is_regular(file) and _is_one(glance(file))]
    if len(found) > 1:
        names = list_names([file.name for file in found])
        raise UserError(f"{path}: holds several models, {names}; give the file of one of them")
    return found[0] if found else None


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what model_config says.

    Raises:
        UserError: damage, an argument that is not known, a network or features that are not here, weights of another.
    """
    return model_of(read_weights(weights), weights.stem)


def model_of(file: ForeignWeights, release: str) -> tuple[dict[str, Tensor], ModelDescription]:
    """The same of what a file of the name ``release`` holds.

    Raises: as ``read``, but for damage.
    """
    config = file.beside.get(CONFIG)
    if not isinstance(config, Mapping):
        raise UserError(f"{CONFIG} is {config!r:.80}, expected a mapping")
    if missing := [key for key in REQUIRED if key not in config]:
        raise UserError(f"{CONFIG} has no {' and no '.join(missing)}, expected the arguments of the network's class")
    theirs = {name: tensor for name, tensor in file.weights.items() if not name.startswith(HEAD)}
    name = SECOND if MARK_OF_SECOND in theirs else FIRST
    model = network_of(name, {**_seen(theirs), **config}, CONFIG)
    features = _features(config, model["num_bins"])
    theirs = without_tables(theirs, TABLES, features)
    if name == FIRST:
        model["pooled_norm"] = True
        layout = REDIMNET
    else:
        features.pad_right = _pad_right(config)
        layout = redimnet2_layout(theirs)
    training = {"toolkit": MAKERS[name], "release": release}
    ours = rename_to_ours(theirs, (layout,), MAKERS[name])
    return ours, ModelDescription(complete_model(model), features, training)


def _seen(theirs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Arguments that the weights say, for where model_config does not."""
    found: dict[str, Any] = {"emb_bn": "bn2.weight" in theirs}
    heads = [theirs[name] for name in ("backbone.mfa.0.weight", "backbone.head.weight") if name in theirs]
    found["out_channels"] = len(heads[0]) if heads else None
    shapes = [theirs[name].shape for name in ("pool.linear1.weight", "pool.linear2.weight") if name in theirs]
    if len(shapes) == 2 and all(len(shape) == 3 for shape in shapes):
        found["global_context_att"] = shapes[0][1] != shapes[1][0]
    if "linear.bias" in theirs:
        found["embed_dim"] = theirs["linear.bias"].numel()
    return found


def _features(config: Mapping[str, Any], num_bins: int) -> ReDimNetConfig:
    kind, given = config.get("feat_type", "pt"), config.get("spec_params")
    if not isinstance(kind, str) or kind not in FEATURES:
        raise UserError(
            f"{CONFIG}.feat_type is {kind!r:.80}, and mel spectrograms are known alone: {', '.join(FEATURES)}"
        )
    settings = FEATURES[kind]
    if given is not None and not isinstance(given, Mapping):
        raise UserError(f"{CONFIG}.spec_params is {given!r:.80}, expected a mapping")
    where, given = f"{CONFIG}.spec_params", given or {}
    known = [*FREE[2:], *ONLY[settings().backend], *TRAINING]
    if unknown := [key for key in given if key not in known]:
        raise UserError(f"{where} has {str(unknown[0])[:80]!r}, expected no other keys than {', '.join(known)}")
    return features_of(settings, {**given, "n_mels": num_bins, "hop_length": config.get("hop_length", 160)}, where)


def _pad_right(config: Mapping[str, Any]) -> int:
    samples = config.get("pad_right_samples")
    if samples is not None and (type(samples) is not int or not 0 <= samples <= 16000):
        raise UserError(f"{CONFIG}.pad_right_samples is {samples!r:.80}, expected a whole number from 0 to 16000")
    return samples or 0


def _is_one(content: Any) -> bool:
    state = content.get(STATE) if isinstance(content, dict) else None
    return isinstance(state, dict) and CONFIG in content and MARK in state
