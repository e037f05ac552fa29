"""What makes two models the same: embeddings of one mean nothing beside those of another."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from svtoolkit.checkpoints.released import ModelDescription


def model_digest(network: nn.Module, description: ModelDescription) -> str:
    """SHA-256 of weights, network and front end, in hexadecimal digits.

    Threshold and facts of the training are left out. It is the same whatever file the weights came from and whatever
    device they are on; which program computes the same filter bank (``features.backend`` torch or torchaudio) does not
    matter either.
    """
    features = asdict(description.features)
    if features.get("backend") == "torchaudio":
        features["backend"] = "torch"
    digest = hashlib.sha256(json.dumps([description.model, features], sort_keys=True, default=str).encode())
    for name, tensor in sorted(network.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.reshape(-1).numpy().tobytes())
    return digest.hexdigest()
