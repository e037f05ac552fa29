"""A release of WeSpeaker's: the weights as avg_model.pt and config.yaml, or both by the model's name, in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svtoolkit.checkpoints.foreign_file import read_weights
from svtoolkit.checkpoints.hub import name_of
from svtoolkit.checkpoints.layout import list_names
from svtoolkit.checkpoints.mel_spectrograms import without_tables
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.checkpoints.wespeaker import from_wespeaker, tfmel, to_wespeaker
from svtoolkit.checkpoints.wespeaker.description import config_of, network_of, sized_network_of
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import Kaldi3DConfig, ReDimNetTFConfig
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.models.front_ends import BACKENDS, features_config
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.plain_data import MalformedError, read_yaml, write_yaml
from svtoolkit.system.regular_file import is_regular

AVERAGE, CONFIG = "avg_model.pt", "config.yaml"

FRONT_ENDS: dict[str, type[FeaturesConfig]] = {"fbank80": FeaturesConfig, "kaldi_3d": Kaldi3DConfig}
"""What a user may state; the sizes are those of config.yaml."""

CONVERTED = {"campplus_cn_common_200k": ("campplus", 192), "eres2net_cn_commom_200k": ("eres2net34_aug", 192)}
"""Assets with weights of 3D-Speaker, and its front end; config.yaml does not say so (wespeaker/cli/speaker.py).
With their network and size of embedding, which are those that 3D-Speaker trained on 200,000 speakers."""

FACTS = ("train_data", "num_epochs", "num_avg", "loss", "seed")
"""Of a run, in config.yaml, that are kept."""


def find_weights(path: Path) -> Path | None:
    """The weights of a release: a folder with avg_model.pt (or models/avg_model.pt), or NAME.pt beside NAME.yaml.

    Raises:
        UserError: weights without a config.yaml, or several models.
    """
    if path.suffix == ".pt" and is_regular(path):
        return path if _config_beside(path) else None
    for weights in (path / AVERAGE, path / "models" / AVERAGE):
        if is_regular(weights):
            if _config_beside(weights) is None:
                raise UserError(
                    f"{weights}: has no {CONFIG} beside it, which says what network and features it is of; copy that "
                    "of the same release"
                )
            return weights
    if not path.is_dir():
        return None
    named = sorted(file for file in path.glob("*.pt") if is_regular(file) and is_regular(file.with_suffix(".yaml")))
    if len(named) > 1:
        raise UserError(
            f"{path}: holds several models, {list_names([file.name for file in named])}; give the file of one of them"
        )
    return named[0] if named else None


def read(weights: Path, front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what config.yaml says.

    Args:
        weights: the file.
        front_end: what the user states of its features; None: what config.yaml and the name of the asset say.

    Raises:
        UserError: damage, a network or a front end that is not known, weights that are no network's.
    """
    file = _config_beside(weights)
    assert file is not None, "found by find_weights"
    config = _read(file)
    arguments = _mapping(file, config, "model_args")
    theirs = read_weights(weights)
    try:
        model = _network(config["model"], arguments, theirs.beside.get("model_config"))
        features = _features(config, model, front_end, weights)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    facts = {key: config[key] for key in FACTS if isinstance(config.get(key), str | int | float)}
    if "train_data" in facts:
        facts["data"] = facts.pop("train_data")
    training = {"toolkit": "WeSpeaker", "release": name_of(_folder(weights)), "model": config["model"], **facts}
    state = theirs.weights
    if isinstance(features, ReDimNetTFConfig):
        state = without_tables(state, tfmel.TABLES, features)
    return from_wespeaker(state), ModelDescription(complete_model(model), features, training)


def _network(model: str, arguments: Mapping[str, Any], in_checkpoint: object) -> dict[str, Any]:
    """Of config.yaml, or of the model_config beside the weights, where a ReDimNet has one."""
    if isinstance(in_checkpoint, Mapping) and model.startswith("ReDimNet"):
        return sized_network_of(model, in_checkpoint, "model_config of the weights")
    return network_of(model, arguments)


def write(folder: Path, weights: Mapping[str, Tensor], description: ModelDescription) -> None:
    """Write avg_model.pt and config.yaml, the latter last, as WeSpeaker's own code loads them.

    Raises:
        UserError: a network or features that WeSpeaker does not have.
    """
    if ranks := description.model.get("ranks"):
        raise UserError(
            f"its layers {list_names(list(ranks))} are products of low rank, which WeSpeaker has no names for; keep it "
            "in our form, or give the model that it was made of"
        )
    dataset = _dataset_args(description.features, description.model["name"])
    model, arguments = config_of(description.model)
    content = {"model": model, "model_args": arguments, "dataset_args": dataset}
    theirs = to_wespeaker(weights)
    with atomic_write(folder / AVERAGE, "wb") as stream:
        torch.save({name: tensor.contiguous().cpu().clone() for name, tensor in theirs.items()}, stream)
    with atomic_write(folder / CONFIG) as stream:
        write_yaml(content, stream)


def _dataset_args(features: FeaturesConfig, network: str) -> dict[str, Any]:
    if isinstance(features, ReDimNetTFConfig):
        return tfmel.dataset_args_of(features, network)
    plain = FeaturesConfig(
        backend=features.backend,
        sample_rate=features.sample_rate,
        num_bins=features.num_bins,
        frame_length_ms=features.frame_length_ms,
        frame_shift_ms=features.frame_shift_ms,
    )
    differing = [
        f"features.{key} is {value!r:.80}"
        for key, value in asdict(features).items()
        if value != asdict(plain).get(key, value) or (key == "backend" and value not in BACKENDS)
    ]
    if differing:
        raise UserError(
            f"{', '.join(differing)}, which WeSpeaker's {CONFIG} cannot say: its code would compute other features; "
            "keep the model in our form"
        )
    return {
        "resample_rate": features.sample_rate,
        "frontend": "fbank",
        "fbank_args": {
            "num_mel_bins": features.num_bins,
            "frame_shift": _number(features.frame_shift_ms),
            "frame_length": _number(features.frame_length_ms),
            "dither": 0.0,
        },
        "cmvn": True,
        "cmvn_args": {"norm_mean": True, "norm_var": False},
    }


def _features(config: Mapping[str, Any], model: Mapping[str, Any], stated: str | None, weights: Path) -> FeaturesConfig:
    """The front end of a config.yaml, of the form of today or the one before it (feature_args)."""
    dataset = _mapping(None, config, "dataset_args")
    old = _mapping(None, config, "feature_args")
    frontend = dataset.get("frontend", "fbank")
    if frontend != "fbank" and stated is not None:
        raise UserError(f"front_end is {stated}, but dataset_args.frontend is {frontend!r}; leave it out")
    if frontend == "tfmel":
        return tfmel.features_of(dataset, str(config["model"]), model["num_bins"])
    if frontend != "fbank":
        raise UserError(f"dataset_args.frontend is {frontend!r:.80}, but only 'fbank' and 'tfmel' are known here")
    name, given = next(
        ((key, section[key]) for section in (dataset, config) for key in ("fbank_args",) if key in section),
        ("feature_args", old),
    )
    if not isinstance(given, Mapping):
        raise UserError(f"{name} is {given!r:.80}, expected a mapping")
    normalisation = {**old, **dataset}
    statistics = _mapping(None, normalisation, "cmvn_args")
    if normalisation.get("cmvn", True) is not True or statistics.get("norm_mean", True) is not True:
        raise UserError("cmvn removes no mean, and a front end is known that does alone")
    if statistics.get("norm_var", False) is not False:
        raise UserError("cmvn_args.norm_var is true, and a front end is known that removes the mean alone")
    built = FRONT_ENDS[_front_end(model, stated, weights)]()
    built.sample_rate = int(_positive("resample_rate", normalisation.get("resample_rate", 16000), whole=True))
    built.num_bins = int(_positive(f"{name}.num_mel_bins", given.get("num_mel_bins", model["num_bins"]), whole=True))
    built.frame_length_ms = _positive(f"{name}.frame_length", given.get("frame_length", 25))
    built.frame_shift_ms = _positive(f"{name}.frame_shift", given.get("frame_shift", 10))
    if built.num_bins != model["num_bins"]:
        raise UserError(f"{name}.num_mel_bins is {built.num_bins}, but the network takes {model['num_bins']}")
    return features_config(asdict(built))


def _front_end(model: Mapping[str, Any], stated: str | None, weights: Path) -> str:
    if stated is not None:
        return stated
    names = [name.replace("-", "_") for name in (name_of(_folder(weights)), weights.stem)]
    if any(asset in name for asset in CONVERTED for name in names):
        return "kaldi_3d"
    alike = [asset for asset, sizes in CONVERTED.items() if sizes == (model["name"], model["embedding_dim"])]
    if alike:
        raise UserError(
            f"is of a {model['name']} with embeddings of {model['embedding_dim']}, as {alike[0]}, whose features are "
            "3D-Speaker's (kaldi_3d), and not WeSpeaker's own (fbank80); say which with front_end=kaldi_3d or "
            "front_end=fbank80"
        )
    return "fbank80"


def _positive(name: str, value: object, *, whole: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < 1e6:
        raise UserError(f"{name} is {value!r:.80}, expected a {'whole ' if whole else ''}number above 0")
    return float(value)


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _folder(weights: Path) -> Path:
    """Of a release, whose weights may be in ``models`` of a run."""
    folder = weights.absolute().parent
    return folder.parent if folder.name == "models" else folder


def _config_beside(weights: Path) -> Path | None:
    candidates = (weights.with_suffix(".yaml"), weights.with_name(CONFIG), _folder(weights) / CONFIG)
    return next((file for file in candidates if is_regular(file)), None)


def _mapping(file: Path | None, content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UserError(f"{f'{file}: ' if file else ''}{key} is {value!r:.80}, expected a mapping")
    return value


def _read(file: Path) -> dict[str, Any]:
    try:
        content = read_yaml(file)
    except MalformedError as error:
        raise UserError(f"{file}: is not plain YAML ({error}); copy it again") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), str):
        raise UserError(f"{file}: has no key model, expected the configuration of a network of WeSpeaker's")
    return content
