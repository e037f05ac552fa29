"""A snapshot of 3D-Speaker's models as ModelScope hands them out: configuration.json and a file of weights.

What network it is, the weights say: configuration.json has other words for it in every release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svtoolkit.checkpoints.foreign_file import read_json_settings, read_weights
from svtoolkit.checkpoints.hub import name_of
from svtoolkit.checkpoints.layout import list_names
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.checkpoints.threed_speaker import from_3d_speaker
from svtoolkit.config.front_ends import Kaldi3DConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.build import complete_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.system.regular_file import is_regular

CONFIGURATION = "configuration.json"
SUFFIXES = (".bin", ".pt", ".ckpt")
TASK = "speaker-verification"

NETWORKS = {
    "xvector.": ("campplus",),
    "fuse34.": ("eres2netv2", "eres2netv2_w24s4ep4"),
    "fuse_mode1234.": ("eres2net34_base", "eres2net34_large", "eres2net34_aug"),
    "seg_1.": ("res2net34_base", "res2net34_large", "resnet34"),
    "asp_bn.": ("sb_ecapa_tdnn",),
}
"""What names begin with in a family alone, or in none of those before it -> its networks."""

EMBEDDINGS = ("seg_2.weight", "seg_1.weight", "xvector.dense.linear.weight", "fc.conv.weight")
"""Weights of the last layer, the first that is there."""

SIZES = ("emb_size", "embed_dim", "embedding_size")


def find_weights(path: Path) -> Path | None:
    """The file of weights of a snapshot; None: the folder is none of a network for verification.

    Raises:
        UserError: configuration.json is damaged, or names no file that is there.
    """
    if not is_regular(path / CONFIGURATION):
        return None
    configuration = read_json_settings(path / CONFIGURATION)
    if configuration.get("task", TASK) != TASK:
        return None
    named = _section(configuration, "model").get("pretrained_model")
    if named is not None:
        if not isinstance(named, str) or Path(named).name != named or not is_regular(path / named):
            raise UserError(
                f"{path / CONFIGURATION}: model.pretrained_model is {named!r:.80}, expected the name of a file beside "
                "it"
            )
        return path / named
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and is_regular(file))
    if len(files) != 1:
        found = list_names([file.name for file in files]) if files else "none"
        raise UserError(
            f"{path / CONFIGURATION}: names no model.pretrained_model, so that one file that ends with "
            f"{', '.join(SUFFIXES)} is expected beside it; found {found}; keep the file of weights alone"
        )
    return files[0]


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what configuration.json and they say.

    Raises:
        UserError: damage, a network that is not known, or sizes that contradict each other.
    """
    file = weights.with_name(CONFIGURATION)
    model = _section(read_json_settings(file), "model")
    sizes = _section(model, "model_config")
    features = Kaldi3DConfig(sample_rate=_whole(file, sizes, "sample_rate", 16000))
    features.num_bins = _whole(file, sizes, "fbank_dim", 80)
    theirs = read_weights(weights).weights
    ours = from_3d_speaker(theirs)
    found = _network_of(theirs, ours, features.num_bins)
    for key in SIZES:
        if sizes.get(key, found["embedding_dim"]) != found["embedding_dim"]:
            raise UserError(
                f"{file}: model_config.{key} is {sizes[key]!r:.80}, but the weights of {weights.name} make embeddings "
                f"of {found['embedding_dim']}; copy both files again"
            )
    description = ModelDescription(
        model=complete_model(found),
        features=features_config(asdict(features)),
        training={"toolkit": "3D-Speaker", "release": name_of(weights.absolute().parent), "weights": weights.name},
        verification=_verification(file, model),
    )
    return ours, description


def _network_of(theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor], num_bins: int) -> dict[str, Any]:
    last = next((theirs[name] for name in EMBEDDINGS if name in theirs), None)
    if last is None:
        raise UserError(f"the weights have none of {', '.join(EMBEDDINGS)}, expected a published network of 3D-Speaker")
    candidates = next(
        (names for beginning, names in NETWORKS.items() if any(name.startswith(beginning) for name in theirs)), ()
    )
    shapes = {name: tensor.shape for name, tensor in ours.items()}
    for name in candidates:
        found: dict[str, Any] = {"name": name, "num_bins": num_bins, "embedding_dim": len(last)}
        if name != "sb_ecapa_tdnn":
            found["pooling_eps"] = 0.0 if name == "campplus" else 1e-8
        if "seg_2.weight" in theirs:
            found["embedding_layers"] = 2
        with torch.device("meta"):
            network = build_model(**found)
        if {key: tensor.shape for key, tensor in network.state_dict().items()} == shapes:
            return found
    tried = f"of the sizes of {', '.join(candidates)}" if candidates else "of a network that is known"
    raise UserError(f"the weights are not {tried} with {num_bins} mel bins; expected a published network of 3D-Speaker")


def _verification(file: Path, model: Mapping[str, Any]) -> dict[str, Any]:
    """Its threshold, which is on the plain cosine as ours is; what errors to expect at it is not said."""
    threshold = model.get("yesOrno_thr")
    if threshold is None:
        return {}
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise UserError(f"{file}: model.yesOrno_thr is {threshold!r:.80}, expected a cosine, a number from -1 to 1")
    return {"threshold": float(threshold), "operating_point": "as published"}


def _whole(file: Path, values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key, default)
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise UserError(f"{file}: model_config.{key} is {value!r:.80}, expected a whole number of 1 or more")
    return value


def _section(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}
