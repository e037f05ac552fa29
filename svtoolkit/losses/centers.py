"""Several centers a class, and a penalty on the hardest other classes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.losses.margins import AAMHead


class SubcenterAAMHead(AAMHead):
    """Additive angular margin to the closest of a class's centers (Deng et al., "Sub-center ArcFace", ECCV 2020).

    Args:
        centers: of each class.

    Raises:
        ValueError: fewer than one center.
    """

    def __init__(self, embedding_dim: int, num_classes: int, *, scale: float, centers: int) -> None:
        if centers < 1:
            raise ValueError(f"centers is {centers}, expected 1 or more")
        super().__init__(embedding_dim, num_classes, scale=scale)
        self.weight = nn.Parameter(torch.empty(num_classes, centers, embedding_dim))
        nn.init.xavier_uniform_(self.weight.view(-1, embedding_dim))

    def similarities(self, embeddings: Tensor) -> Tensor:
        cosines = F.linear(F.normalize(embeddings), F.normalize(self.class_weights.flatten(0, 1)))
        return cosines.unflatten(1, self.weight.shape[:2]).amax(dim=2)


class TopKAAMHead(SubcenterAAMHead):
    """The same, and the ``top_k`` closest other classes of a crop count as if they were closer by an angle.

    Inter-TopK penalty, cos(theta - m') (Zhao et al., "Multi-query multi-head attention pooling and inter-topk penalty
    for speaker verification", ICASSP 2022). The angle grows with the margin: m' is ``top_k_margin`` where the margin is
    0.2, as in WeSpeaker.

    Raises:
        ValueError: fewer than one class, an angle below 0.
    """

    shardable = False

    def __init__(
        self, embedding_dim: int, num_classes: int, *, scale: float, centers: int, top_k: int, top_k_margin: float
    ) -> None:
        if top_k < 1:
            raise ValueError(f"top_k is {top_k}, expected 1 or more")
        if not 0 <= top_k_margin < math.pi / 2:
            raise ValueError(f"top_k_margin is {top_k_margin}, expected radians from 0 up to below {math.pi / 2:.4g}")
        super().__init__(embedding_dim, num_classes, scale=scale, centers=centers)
        self.top_k, self.top_k_margin = top_k, top_k_margin

    def logits(self, similarities: Tensor, columns: Tensor) -> Tensor:
        angle = self.top_k_margin * self.margin / 0.2
        others = similarities.detach().scatter(1, columns, -math.inf)
        hardest = others.topk(min(self.top_k, self.num_classes - 1), dim=1).indices
        cosine = similarities.gather(1, hardest)
        closer = cosine * math.cos(angle) + self.sine(cosine) * math.sin(angle)
        return super().logits(similarities, columns).scatter(1, hardest, closer)
