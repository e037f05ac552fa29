"""The released form of a model: model.safetensors + model.yaml. Plain data; reading it executes nothing.

format: 1
model: {name: resnet34, num_bins: 80, embedding_dim: 256, base_width: null}
features: {backend: torch, sample_rate: 16000, ...}
training: facts of the run, informative only
verification: {threshold: 0.31, operating_point: fa_rate=0.01, p_miss: 0.03, p_fa: 0.01, calibration: {...}, ...}
                                        once `svt evaluate` or `svt calibrate` has stored it
weights_sha256: of model.safetensors; without it (older models, those of others) damage in there may go unnoticed
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.models.registry import NETWORKS, RELEASED_NETWORKS
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.plain_data import MalformedError, read_yaml, write_yaml
from svtoolkit.system.regular_file import is_regular

FORMAT = 1
WEIGHTS, DESCRIPTION = "model.safetensors", "model.yaml"

_SHA256 = re.compile("[0-9a-fA-F]{64}")


@dataclass
class ModelDescription:
    """What model.yaml says.

    Attributes:
        model: name and sizes, the arguments of ``build_model``.
        features: the front end that the network was trained with.
        training: facts of the run that made it.
        verification: threshold on the plain cosine, the error rates at it, the affine calibration of the score and
            what they rest on; empty until `svt evaluate` or `svt calibrate` stores them.
        weights_sha256: of the file of the weights, in hexadecimal digits; None: not known.
    """

    model: dict[str, Any]
    features: FeaturesConfig
    training: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    weights_sha256: str | None = field(default=None, compare=False)


def write_released(folder: str | Path, weights: Mapping[str, Tensor], description: ModelDescription) -> Path:
    """Write both files, the description last, so that a folder with a description is complete.

    The description that is written says the SHA-256 of the weights, whatever the one given says.
    """
    target = Path(folder)
    payload = safetensors.torch.save({name: tensor.contiguous().cpu() for name, tensor in weights.items()})
    with atomic_write(target / WEIGHTS, "wb") as stream:
        stream.write(payload)
    write_description(target, replace(description, weights_sha256=hashlib.sha256(payload).hexdigest()))
    return target


def write_description(folder: str | Path, description: ModelDescription) -> None:
    with atomic_write(Path(folder) / DESCRIPTION) as stream:
        write_yaml(content_of(description), stream)


def content_of(description: ModelDescription) -> dict[str, Any]:
    """What model.yaml holds."""
    content = {"format": FORMAT, **asdict(description)}
    if description.weights_sha256 is None:
        del content["weights_sha256"]
    return content


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
                f"{path}: section {section!r} is {value!r:.80}, expected a mapping; re-create the file with "
                "`svt average`"
            )
    try:
        features = features_config(content["features"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    num_bins = content["model"].get("num_bins", features.num_bins)
    if num_bins != features.num_bins:
        raise UserError(
            f"{path}: model.num_bins is {num_bins!r:.80} and features.num_bins is {features.num_bins}, "
            "expected the same; re-create the file with `svt average`"
        )
    digest = content.get("weights_sha256")
    if digest is not None and not (isinstance(digest, str) and _SHA256.fullmatch(digest)):
        raise UserError(
            f"{path}: weights_sha256 is {digest!r:.80}, expected 64 hexadecimal digits; re-create the file with "
            "`svt average`"
        )
    return ModelDescription(content["model"], features, **facts, weights_sha256=digest)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected a released model, as written by `svt average`")
    try:
        content = read_yaml(path)
    except MalformedError as error:
        raise UserError(f"{path}: is not YAML ({error}); re-create it with `svt average`") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise UserError(f"{path}: format is {found!r:.80}, expected {FORMAT}; re-create it with `svt average`")
    return content


def read_released(folder: str | Path) -> tuple[nn.Module, ModelDescription]:
    """Read a released model: the network in eval mode with its weights, and its description.

    Raises:
        UserError: a file is missing or damaged, or weights and description do not fit each other.
    """
    description = read_description(folder)
    path = Path(folder) / WEIGHTS
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected the weights beside {DESCRIPTION}")
    try:
        weights = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); copy it again or re-create it with `svt average`"
        ) from error
    _check_digest(path, description)
    try:
        _check_size(path, weights, description)
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


def _check_digest(path: Path, description: ModelDescription) -> None:
    """Refuse other weights than the description was written with: a bit of them may have flipped."""
    expected = description.weights_sha256
    if expected is not None and (found := hash_file(path)) != expected.lower():
        raise UserError(
            f"{path}: has the SHA-256 {found}, expected {expected} by {DESCRIPTION}: the weights are damaged, or "
            "others than it was written for; copy both files again, or re-create them with `svt average`"
        )


def _check_size(path: Path, weights: Mapping[str, Tensor], description: ModelDescription) -> None:
    """Refuse a network of ours that is much larger than the weights, before memory is taken for it."""
    if description.model.get("name") not in {*NETWORKS.rows, *RELEASED_NETWORKS}:
        return
    with torch.device("meta"):
        network = build_model(**description.model)
    wanted, found = (sum(tensor.numel() for tensor in state.values()) for state in (network.state_dict(), weights))
    if wanted > 2 * found:
        raise UserError(f"section 'model' describes a network of {wanted} weights, but {path.name} holds {found}")
