"""What a file of `svt export` says about itself: plain data, read without torch.

An ONNX file has metadata, text by name. Under ``svtoolkit`` stands JSON: ``format``, then the fields of ``Exported``.
Beside it stand those that other runtimes ask for (``svtoolkit.deploy.metadata``).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import features_config
from svtoolkit.models.onnx_graph import LARGEST, metadata_of
from svtoolkit.system.regular_file import is_regular

FORMAT = 1
KEY = "svtoolkit"
SUFFIX = ".onnx"
WAVEFORM, FEATURES = "waveform", "feats"
"""Names of the one input: samples (batch, samples), or features with their mean, (batch, frames, bins)."""
EQUAL_COSINE, EQUAL_SCORE = 0.9999, 1e-3
"""Least cosine and greatest difference of a score with which embeddings of a file are those of what it was made of."""
EMBEDDING = "embs"
"""Name of the one output, (batch, embedding_dim)."""


@dataclass(frozen=True)
class Exported:
    """The description of an exported file.

    Attributes:
        model: name and sizes of the network.
        features: the front end; it is a part of the graph where ``input`` is ``waveform``, all but the removal of the
            mean stands before it where it is ``feats``.
        input: name of the input.
        precision: fp32, fp16, bf16 or int8.
        training, verification: as of model.yaml.
        results: of `svt evaluate`, as far as they were given.
        weights_sha256: of the weights that it was made of.
        model_digest: of the model that it was made of, as ``svtoolkit.checkpoints.model_digest`` has it.
        checked: what embeddings of torch it was compared with, and how near they were.
        exported_by: program and version.
    """

    model: dict[str, Any]
    features: FeaturesConfig
    input: str
    precision: str
    training: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    weights_sha256: str | None = None
    model_digest: str | None = None
    checked: dict[str, Any] = field(default_factory=dict)
    exported_by: str = ""

    def digest(self, content: bytes) -> str:
        """What its embeddings depend on: the digest of the model that it was made of, where it was found to be equal.

        Any other file is a model of its own: of 8 bits two are not even equal to each other.

        Args:
            content: of the file.
        """
        tolerance = self.checked.get("tolerance")
        limits = tolerance if isinstance(tolerance, dict) else {}
        near = limits.get("cosine", 0.0) >= EQUAL_COSINE and limits.get("score", math.inf) <= EQUAL_SCORE
        return self.model_digest if self.model_digest and near else hashlib.sha256(content).hexdigest()

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)})


def is_exported(path: str | Path) -> bool:
    """Whether a path is a file of `svt export`; its graph is not looked at."""
    if not str(path).endswith(SUFFIX) or not is_regular(path) or Path(path).stat().st_size > LARGEST:
        return False
    try:
        return KEY in metadata_of(Path(path).read_bytes())
    except ValueError:
        return False


def parse_exported(said: Mapping[str, str]) -> Exported:
    """The description among the metadata of a file, as ``metadata_of`` reads them.

    Raises:
        UserError: there is none, or it is malformed.
    """
    try:
        content = json.loads(said[KEY])
        if content.pop("format") != FORMAT or content["input"] not in (WAVEFORM, FEATURES):
            raise ValueError("another format")
        found = Exported(**{**content, "features": features_config(content["features"])})
        sections = (found.model, found.training, found.verification, found.checked)
        if not all(isinstance(section, dict) for section in sections):
            raise ValueError("a section that is none")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(
            f"its metadata hold no description that this version of svtoolkit reads ({type(error).__name__}: "
            f"{error!s:.80}); export the model again with `svt export`"
        ) from error
    return found
