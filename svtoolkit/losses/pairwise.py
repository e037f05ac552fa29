"""A term beside the loss of the classes: crops of one class against those of the others that come with them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.config import AngularPrototypicalConfig, PairwiseConfig
from svtoolkit.errors import UserError

SMALLEST_SCALE = 1e-6
"""As in the authors' code (clovaai/voxceleb_trainer): below it closer would be further."""


class PairwiseOutput(NamedTuple):
    """Of a micro-batch: losses (batch,), of each crop that of its tuple, and 0 where it is in none; and of the tuples,
    (tuples,) each: whether the own prototype is the closest, and whether there was any other to compare.
    """

    losses: Tensor
    correct: Tensor
    counted: Tensor


class AngularPrototypical(nn.Module):
    """Angular prototypical loss (Chung et al., "In defence of metric learning for speaker recognition", 2020).

    Crops come in tuples of a class. The last crop of a tuple is compared with a prototype for each tuple, the mean of
    the embeddings of its other crops, by their cosine times a scale that is learnt; the loss is the cross entropy over
    the tuples. The offset b that the paper adds to all of these is the same for each prototype and cancels in the
    softmax: it is left out.

    A tuple whose crops are not of one class (those without a partner, and those drawn in the place of a bad utterance)
    is neither compared nor a prototype; neither is the prototype of another tuple of the same class. Computed in
    float32 (float64 where embeddings are) whatever the autocast state.

    Args:
        crops: of a tuple.
        scale: at the beginning.
        weight: of the term.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(self, *, crops: int, scale: float, weight: float) -> None:
        super().__init__()
        for name, value in (("scale", scale), ("weight", weight)):
            if not value > 0:
                raise ValueError(f"{name} is {value}, expected a number above 0")
        if crops < 2:
            raise ValueError(f"crops is {crops}, expected 2 or more of a class")
        self.crops = crops
        self.weight = weight
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, embeddings: Tensor, labels: Tensor) -> PairwiseOutput:
        """(batch, embedding_dim), (batch,) int64, tuple after tuple -> losses of which the mean is that of the term."""
        with torch.autocast(embeddings.device.type, enabled=False):
            wide = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
            tuples, classes = wide.unflatten(0, (-1, self.crops)), labels.unflatten(0, (-1, self.crops))
            queries, prototypes = tuples[:, -1], tuples[:, :-1].mean(dim=1)
            similarities = self.scale.clamp(min=SMALLEST_SCALE) * (F.normalize(queries) @ F.normalize(prototypes).T)
            is_tuple = (classes == classes[:, :1]).all(dim=1)
            is_other = is_tuple & (classes[:, 0] != classes[:, :1])
            own = torch.eye(len(classes), dtype=torch.bool, device=labels.device)
            logits = similarities.masked_fill(~(is_other | own), -torch.inf)
            counted = is_tuple & is_other.any(dim=1)
            places = torch.arange(len(classes), device=labels.device)
            losses = torch.where(counted, F.cross_entropy(logits, places, reduction="none"), 0.0)
        correct = counted & (logits.argmax(dim=1) == places)
        return PairwiseOutput(losses.repeat_interleave(self.crops), correct, counted)


def build_pairwise(settings: PairwiseConfig) -> AngularPrototypical | None:
    """The term as configured; None where there is none.

    Raises:
        UserError: a number out of range.
    """
    if not isinstance(settings, AngularPrototypicalConfig):
        return None
    try:
        return AngularPrototypical(crops=settings.crops, scale=settings.scale, weight=settings.weight)
    except ValueError as error:
        raise UserError(f"pairwise.{error}") from error
