"""SphereFace2: every class decides by itself, without a softmax over all."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.losses.head import HeadOutput
from svtoolkit.losses.margins import AAMHead


class SphereFace2Head(AAMHead):
    """Binary cross entropies of all classes (Wen et al., "SphereFace2", ICLR 2022; Han et al., ICASSP 2023).

    Of a crop of class y, with g(c) = 2 ((c + 1) / 2) ** power - 1 a bias b that all classes share, and j the others:

        balance log(1 + exp(-(s (g(cos y) - m) + b))) + (1 - balance) sum over j of log(1 + exp(s (g(cos j) + m) + b))

    or, with ``angular``, g(cos(theta_y + m)) and g(cos(theta_j - m)). b begins at 0, as in WeSpeaker.

    Args:
        balance: between own class and others, between 0 and 1.
        power: how far cosines near 1 are spread.

    Raises:
        ValueError: a value out of range.
    """

    shardable = False

    def __init__(
        self, embedding_dim: int, num_classes: int, *, scale: float, balance: float, power: int, angular: bool
    ) -> None:
        if not 0 < balance < 1:
            raise ValueError(f"balance is {balance}, expected a weight between 0 and 1")
        if power < 1:
            raise ValueError(f"power is {power}, expected 1 or more")
        super().__init__(embedding_dim, num_classes, scale=scale)
        self.balance, self.power, self.angular = balance, power, angular
        self.bias = nn.Parameter(torch.zeros(1, 1))

    def check_margin(self, margin: float) -> None:
        limit = self.margin_limit if self.angular else 1.0
        if not 0 <= margin < limit:
            raise ValueError(f"margin is {margin}, expected 0 up to below {limit:.4g}")

    def forward(self, embeddings: Tensor, labels: Tensor) -> HeadOutput:
        with torch.autocast(embeddings.device.type, enabled=False):
            cosines = self.similarities(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)))
            columns = labels.unsqueeze(1)
            logits = self._others(cosines).scatter(1, columns, self._own(cosines.gather(1, columns)))
            scaled = self.scale * logits + self.bias
            own = F.softplus(-scaled.gather(1, columns)).squeeze(1)
            others = F.softplus(scaled).scatter(1, columns, 0.0).sum(dim=1)
            losses = self.balance * own + (1 - self.balance) * others
        return HeadOutput(losses, logits.argmax(dim=1) == labels, cosines.argmax(dim=1) == labels)

    def _own(self, cosines: Tensor) -> Tensor:
        return self._spread(self.with_margin(cosines)) if self.angular else self._spread(cosines) - self.margin

    def _others(self, cosines: Tensor) -> Tensor:
        if not self.angular:
            return self._spread(cosines) + self.margin
        return self._spread(cosines * math.cos(self.margin) + self.sine(cosines) * math.sin(self.margin))

    def _spread(self, cosines: Tensor) -> Tensor:
        return 2 * ((cosines + 1) / 2).pow(self.power) - 1
