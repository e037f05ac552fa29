"""The larger network of a distillation in a prediction: its weights, and its pass without a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config import DistillationConfig, MemoryPredictionConfig
from svtoolkit.device import autocast
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.planning.unpredictable import UnpredictableError


class Teacher(nn.Module):
    """The network in eval mode, with fresh weights, on features of its own; their filter bank is not counted."""

    def __init__(self, description: ModelDescription, device: torch.device) -> None:
        super().__init__()
        network = build_model(**description.model)
        self.network = network if device.type == "cpu" else network.to(device)  # fake tensors refuse Module.to
        self.num_bins = description.features.num_bins
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def forward(self, features: Tensor, precision: str) -> Tensor:
        """Embeddings of crops: features of the network that learns, (batch, frames, bins) -> (batch, embedding_dim)."""
        if self.num_bins != features.shape[2]:
            features = features.new_zeros(*features.shape[:2], self.num_bins)
        with autocast(features.device, precision):
            embeddings: Tensor = self.network(features)
        return embeddings


def build_teacher(question: MemoryPredictionConfig, device: torch.device) -> Teacher | None:
    """The larger network of ``question.distillation``; None where there is none.

    Raises:
        UserError: no such model, or one whose embeddings are of another size.
        UnpredictableError: it takes no fake tensors, as an ONNX graph.
    """
    settings = question.distillation
    description = _describe(settings)
    if description is None:
        return None
    check_embeddings(settings, description, question.model.embedding_dim)
    try:
        teacher = Teacher(description, device)
        if device.type == "cpu":
            teacher(torch.zeros(1, question.frames, question.num_bins), "fp32")
    except UserError:
        raise
    except Exception as error:  # of any kind: the networks are of other packages, too
        what = f"distillation.model={settings.model}"
        why = f"it takes no tensors without values ({type(error).__name__}); leave it out to predict the rest"
        raise UnpredictableError(what, why) from error
    return teacher


def check_embeddings(settings: DistillationConfig, description: ModelDescription, size: int) -> None:
    """Whether embeddings of so many values can be compared with its own.

    Raises:
        UserError: they cannot.
    """
    theirs = description.model["embedding_dim"]
    if theirs != size:
        raise UserError(
            f"{settings.model}: its embeddings have {theirs} values, and model.embedding_dim is {size}; set "
            f"model.embedding_dim={theirs}, since the cosine needs the same"
        )


def plain_teacher(settings: DistillationConfig) -> dict[str, Any] | None:
    """What a prediction depends on, whatever its folder is called."""
    description = _describe(settings)
    return None if description is None else {**description.model, "num_bins": description.features.num_bins}


def _describe(settings: DistillationConfig) -> ModelDescription | None:
    if settings.model is None:
        return None
    from svtoolkit.checkpoints.releases import describe, require_release  # readers of every format, for few questions

    return describe(require_release(settings.model), front_end=settings.front_end)
