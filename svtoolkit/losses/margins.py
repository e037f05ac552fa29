"""AAM, AM and plain softmax: each a few lines over the hooks of the head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.losses.head import ClassificationHead


class AAMHead(ClassificationHead):
    """Additive angular margin, cos(theta + m) (Deng et al., CVPR 2019, eq. 3).

    Beyond theta = pi - m, where cos(theta + m) would rise again, the straight line cos(theta) - 1 - cos(pi - m) goes
    on without a jump (WeSpeaker's choice). The sine's argument is clamped above 0: its root has no finite slope there.
    """

    eps = 1e-7
    margin_limit = math.pi / 2

    def sine(self, cosine: Tensor) -> Tensor:
        return torch.sqrt((1.0 - cosine * cosine).clamp(min=self.eps))

    def with_margin(self, target: Tensor) -> Tensor:
        shifted = target * math.cos(self.margin) - self.sine(target) * math.sin(self.margin)
        turn = math.cos(math.pi - self.margin)
        return torch.where(target > turn, shifted, target - 1.0 - turn)


class AMHead(ClassificationHead):
    """Additive margin, cos(theta) - m (Wang et al., IEEE SPL 2018, eq. 6)."""

    margin_limit = 1.0

    def with_margin(self, target: Tensor) -> Tensor:
        return target - self.margin


class SoftmaxHead(ClassificationHead):
    """Plain softmax over a linear layer with bias: no length normalisation, no margin."""

    def __init__(self, embedding_dim: int, num_classes: int, *, scale: float = 1.0) -> None:
        if scale != 1:
            raise ValueError(f"there is no scale in a plain softmax, found scale={scale}; use loss.scale=1")
        super().__init__(embedding_dim, num_classes, scale=scale)
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def check_margin(self, margin: float) -> None:
        if margin != 0:
            raise ValueError(f"there is no margin in a plain softmax, found margin={margin}; use loss.margin=0")

    def similarities(self, embeddings: Tensor) -> Tensor:
        return F.linear(embeddings, self.class_weights, self.bias)
