"""AAM, AM and plain softmax: each a few lines over the hooks of the head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.losses.head import ClassificationHead


class AAMHead(ClassificationHead):
    """Additive angular margin, cos(theta + m) (Deng et al., CVPR 2019, eq. 3).

    Beyond theta = pi - m, where cos(theta + m) would rise again, the straight line cos(theta) - 1 - cos(pi - m) goes
    on without a jump (WeSpeaker's choice). The sine's argument is clamped above 0: its root has no finite slope there.
    """

    eps = 1e-7

    def with_margin(self, target: Tensor) -> Tensor:
        sine = torch.sqrt((1.0 - target * target).clamp(min=self.eps))
        shifted = target * math.cos(self.margin) - sine * math.sin(self.margin)
        turn = math.cos(math.pi - self.margin)
        return torch.where(target > turn, shifted, target - 1.0 - turn)


class AMHead(ClassificationHead):
    """Additive margin, cos(theta) - m (Wang et al., IEEE SPL 2018, eq. 6)."""

    def with_margin(self, target: Tensor) -> Tensor:
        return target - self.margin


class SoftmaxHead(ClassificationHead):
    """Plain softmax over a linear layer with bias: no length normalisation, no margin."""

    def __init__(self, embedding_dim: int, num_classes: int) -> None:
        super().__init__(embedding_dim, num_classes, scale=1.0)
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def similarities(self, embeddings: Tensor) -> Tensor:
        return F.linear(embeddings, self.weight, self.bias)


def build_head(name: str, *, embedding_dim: int, num_classes: int, margin: float, scale: float) -> ClassificationHead:
    """Build the head called ``name`` (aam, am or softmax); ``margin`` is checked here and set by its schedule.

    Raises:
        UserError: unknown name, a margin or scale that the loss does not know.
    """
    if name == "softmax":
        if margin != 0 or scale != 1:
            raise UserError(
                f"loss=softmax has no margin and no scale, found margin={margin} scale={scale}; use 0 and 1"
            )
        return SoftmaxHead(embedding_dim, num_classes)
    heads = {"aam": (AAMHead, math.pi / 2), "am": (AMHead, 1.0)}
    if name not in heads:
        raise UserError(f"there is no loss {name!r}; expected aam, am or softmax")
    head, ceiling = heads[name]
    if not 0 <= margin < ceiling:
        raise UserError(f"loss={name}: margin is {margin}, expected 0 up to below {ceiling:.4g}")
    if not 0 < scale < math.inf:
        raise UserError(f"loss={name}: scale is {scale}, expected a finite number above 0")
    return head(embedding_dim, num_classes, scale=scale)
