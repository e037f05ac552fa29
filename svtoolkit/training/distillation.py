"""Knowledge distillation: a network learns the embeddings of a larger one beside its own classes.

The loss of a crop is the cosine distance of its embedding to that of the larger network, weighted, added to that of the
classes. It is a sum over crops, so that micro-batches and processes do not change it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from svtoolkit.checkpoints.releases import read_release
from svtoolkit.config import TrainConfig
from svtoolkit.device import autocast
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.losses.distillation import cosine_distances
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.teacher import check_embeddings


@dataclass(eq=False)
class Teacher:
    """A network in eval mode, and its own front end; neither has a gradient, nor is either part of a state.

    Args:
        front_end: None: that of the network that learns, whose features it takes as they are.
        weight: of the distance.
    """

    network: nn.Module
    front_end: FrontEnd | None
    weight: float
    device: torch.device
    precision: str

    def __post_init__(self) -> None:
        self.network.to(self.device).eval().requires_grad_(False)
        if self.front_end is not None:
            self.front_end.to(self.device)

    @torch.no_grad()
    def embed(self, waveforms: Tensor, features: Tensor, warps: Tensor | None = None) -> Tensor:
        """Embeddings of crops: (batch, samples) and their features before masks -> (batch, embedding_dim).

        Its own features are warped as those are.
        """
        if self.front_end is not None:
            features = self.front_end.features_of(waveforms, warps)
        with autocast(self.device, self.precision):
            embeddings: Tensor = self.network(features)
        return embeddings

    def distances(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """As ``cosine_distances``."""
        return cosine_distances(embeddings, targets)


def read_teacher(config: TrainConfig, device: torch.device, *, samples: int, stored: bool) -> Teacher | None:
    """The larger network of ``distillation.model``; None where there is none.

    Args:
        samples: of a crop.
        stored: the data are features, not audio.

    Raises:
        UserError: no such model, or one whose embeddings or features cannot be those of this run.
    """
    settings = config.distillation
    if settings.model is None:
        return None
    if not settings.weight > 0:
        raise UserError(f"distillation.weight is {settings.weight}, expected a number above 0")
    network, description = read_release(settings.model, front_end=settings.front_end)
    check_embeddings(settings, description, config.model.embedding_dim)
    theirs, ours = description.features, config.features
    if theirs.sample_rate != ours.sample_rate:
        raise UserError(
            f"{settings.model}: hears {theirs.sample_rate} Hz, and features.sample_rate is {ours.sample_rate}; choose "
            "a larger network of that rate"
        )
    if theirs != ours and stored:
        raise UserError(
            f"{settings.model}: has other features than this run, which reads stored ones; train on audio, or choose "
            "its features"
        )
    front_end = None if theirs == ours else front_end_of(theirs, config.data.warps)
    if front_end is not None and front_end.num_frames(samples) < 1:
        raise UserError(
            f"{settings.model}: its features have no frame in a crop of data.crop_frames={config.data.crop_frames}; "
            "lengthen it"
        )
    return Teacher(network, front_end, settings.weight, device, config.trainer.precision)
