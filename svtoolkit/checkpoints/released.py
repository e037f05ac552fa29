"""The released form of a model: model.safetensors + model.yaml. Plain data; reading it executes nothing.

format: 1
model: {name: resnet34, num_bins: 80, embedding_dim: 256, base_width: null}
features: {backend: torch, sample_rate: 16000, ...}
training: facts of the run, informative only
verification: {threshold: 0.31, operating_point: fa_rate=0.01, p_miss: 0.03, p_fa: 0.01, calibration: {...}, ...}
                                        once `svt evaluate` or `svt calibrate` has stored it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import yaml
from torch import Tensor, nn

from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.system.atomic import atomic_write

FORMAT = 1
WEIGHTS, DESCRIPTION = "model.safetensors", "model.yaml"


@dataclass
class ModelDescription:
    """What model.yaml says.

    Attributes:
        model: name and sizes, the arguments of ``build_model``.
        features: the front end that the network was trained with.
        training: facts of the run that made it.
        verification: threshold on the plain cosine, the error rates at it, the affine calibration of the score and
            what they rest on; empty until `svt evaluate` or `svt calibrate` stores them.
    """

    model: dict[str, Any]
    features: FeaturesConfig
    training: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)


def write_released(folder: str | Path, weights: Mapping[str, Tensor], description: ModelDescription) -> Path:
    """Write both files, the description last, so that a folder with a description is complete."""
    target = Path(folder)
    payload = safetensors.torch.save({name: tensor.contiguous().cpu() for name, tensor in weights.items()})
    with atomic_write(target / WEIGHTS, "wb") as stream:
        stream.write(payload)
    write_description(target, description)
    return target


def write_description(folder: str | Path, description: ModelDescription) -> None:
    content = {"format": FORMAT, **asdict(description)}
    with atomic_write(Path(folder) / DESCRIPTION) as stream:
        yaml.safe_dump(content, stream, sort_keys=False)


def read_description(folder: str | Path) -> ModelDescription:
    """Read model.yaml.

    Raises:
        UserError: missing or malformed; names the file and the key.
    """
    path = Path(folder) / DESCRIPTION
    content = _read_yaml(path)
    for section in ("model", "features"):
        if not isinstance(content.get(section), dict):
            raise UserError(f"{path}: section {section!r} is missing; re-create the file with `svt average`")
    facts = {section: content.get(section) or {} for section in ("training", "verification")}
    for section, value in facts.items():
        if not isinstance(value, dict):
            raise UserError(
                f"{path}: section {section!r} is {value!r}, expected a mapping; re-create the file with `svt average`"
            )
    try:
        features = features_config(content["features"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    num_bins = content["model"].get("num_bins", features.num_bins)
    if num_bins != features.num_bins:
        raise UserError(
            f"{path}: model.num_bins is {num_bins!r} and features.num_bins is {features.num_bins}, "
            "expected the same; re-create the file with `svt average`"
        )
    return ModelDescription(content["model"], features, **facts)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; expected a released model, as written by `svt average`")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: is not YAML ({str(error).splitlines()[0]}); re-create it with `svt average`"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise UserError(f"{path}: format is {found!r}, expected {FORMAT}; re-create it with `svt average`")
    return content


def read_released(folder: str | Path) -> tuple[nn.Module, ModelDescription]:
    """Read a released model: the network in eval mode with its weights, and its description.

    Raises:
        UserError: a file is missing or damaged, or weights and description do not fit each other.
    """
    description = read_description(folder)
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; expected the weights beside {DESCRIPTION}")
    try:
        weights = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); copy it again or re-create it with `svt average`"
        ) from error
    try:
        network = build_model(**description.model)
    except UserError as error:
        raise UserError(f"{Path(folder) / DESCRIPTION}: {error}") from error
    except TypeError as error:
        raise UserError(
            f"{Path(folder) / DESCRIPTION}: section 'model' does not describe a network ({error})"
        ) from error
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: weights do not fit the network of {DESCRIPTION}: {reason}") from error
    return network.eval(), description
