"""One classification head with two hooks: how embeddings are compared to classes, what the margin does."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler


class HeadOutput(NamedTuple):
    """Of a batch: cross entropy (batch,), and whether the class is right with and without the margin (batch,)."""

    losses: Tensor
    correct: Tensor
    correct_no_margin: Tensor


class Head(nn.Module, ABC):
    """What a run asks of a head; whether its classes lie on one device or on many is the head's own business.

    The methods here are those of a head that every process has whole. ``load_state_dict`` takes the state of a whole
    head, too.

    Attributes:
        margin: set by the margin schedule before every step.
        loss_name: as in ``loss=aam``.
        is_replicated: whether all processes have the same parameters, whose gradients are averaged.
    """

    margin: float
    loss_name = ""
    is_replicated = True

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Of the whole head."""

    @abstractmethod
    def forward(self, embeddings: Tensor, labels: Tensor) -> HeadOutput:
        """(batch, embedding_dim), (batch,) int64 -> losses and hits, (batch,) each."""

    def trial_losses(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Losses that take as much memory as those of ``forward``, found without any other process."""
        return self(embeddings, labels).losses

    def clip_grad_norm_(self, network: Iterable[nn.Parameter], max_norm: float) -> Tensor:
        """torch's function for the parameters of network and whole head; returns the norm before clipping, ()."""
        return nn.utils.clip_grad_norm_([*network, *self.parameters()], max_norm)

    def build_scaler(self, device: torch.device, enabled: bool) -> GradScaler:
        """The loss scaler of fp16, which skips a step in all processes or in none."""
        return GradScaler(device.type, enabled=enabled)

    def gather_head_state(self) -> dict[str, Tensor]:
        """The state of the whole head, in the first process; all processes call this."""
        return self.state_dict()

    def gather_optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """State of an optimizer whose last parameters are the head's, in the first process; all call this."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """The inverse of ``gather_optimizer_state``, from its result.

        Raises:
            ValueError: the state is of another optimizer.
        """
        optimizer.load_state_dict(state)


class ClassificationHead(Head):
    """Cross entropy over the training speakers; a loss is a subclass with its own hooks.

    Computed in float32 (float64 where embeddings are) whatever the autocast state: a margin of 0.2 in a cosine near 1
    is lost in 8 bits of mantissa.

    Args:
        embedding_dim: size of the embeddings.
        num_classes: training speakers x speeds x warps.
        scale: factor on the similarities before the softmax.

    Raises:
        ValueError: a scale that is no finite number above 0.
    """

    margin_limit: ClassVar[float] = math.inf
    """Margins from 0 up to below this make sense."""

    shardable: ClassVar[bool] = True
    """Whether a device needs no other classes than its own, but for the sum of the softmax."""

    def __init__(self, embedding_dim: int, num_classes: int, *, scale: float) -> None:
        super().__init__()
        if not 0 < scale < math.inf:
            raise ValueError(f"scale is {scale}, expected a finite number above 0")
        self.scale = scale
        self.margin = 0.0
        self.weight = nn.Parameter(torch.empty(num_classes, embedding_dim))
        nn.init.xavier_uniform_(self.weight)

        self.projection: nn.Parameter | None = None

    @property
    def num_classes(self) -> int:
        return len(self.weight)

    def lower_rank(self, rank: int) -> None:
        """Make the matrix of the classes a product, with fresh values: ``weight`` (classes, ..., rank) times
        ``projection`` (rank, embedding_dim).

        Raises:
            ValueError: no rank of such a matrix.
        """
        *rows, embedding_dim = self.weight.shape
        most = min(math.prod(rows), embedding_dim)
        if not 1 <= rank <= most:
            raise ValueError(f"rank is {rank}, expected 1 to {most}, or null")
        self.projection = nn.Parameter(self.weight.new_empty(rank, embedding_dim))
        self.weight = nn.Parameter(self.weight.new_empty(*rows, rank))
        for factor in (self.weight, self.projection):
            nn.init.xavier_uniform_(factor.view(-1, factor.shape[-1]))

    @property
    def class_weights(self) -> Tensor:
        """What embeddings are compared to: (classes, ..., embedding_dim)."""
        return self.weight if self.projection is None else self.weight @ self.projection

    def check_margin(self, margin: float) -> None:
        """Raise ValueError for a margin that a schedule must not set."""
        if not 0 <= margin < self.margin_limit:
            raise ValueError(f"margin is {margin}, expected 0 up to below {self.margin_limit:.4g}")

    def similarities(self, embeddings: Tensor) -> Tensor:
        """Hook: (batch, embedding_dim) -> (batch, classes); cosines unless a subclass says otherwise."""
        return F.linear(F.normalize(embeddings), F.normalize(self.class_weights))

    def with_margin(self, target: Tensor) -> Tensor:
        """Hook: similarity to the true class (batch,) -> the same made harder by ``self.margin``."""
        return target

    def logits(self, similarities: Tensor, columns: Tensor) -> Tensor:
        """Hook: similarities (batch, classes) and the true classes (batch, 1) -> what the softmax sees, unscaled."""
        target = similarities.gather(1, columns).squeeze(1)
        return similarities.scatter(1, columns, self.with_margin(target).unsqueeze(1))

    def forward(self, embeddings: Tensor, labels: Tensor) -> HeadOutput:
        with torch.autocast(embeddings.device.type, enabled=False):
            similarities = self.similarities(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)))
            logits = self.logits(similarities, labels.unsqueeze(1))
            losses = F.cross_entropy(self.scale * logits, labels, reduction="none")
        correct = logits.argmax(dim=1) == labels
        return HeadOutput(losses, correct, similarities.argmax(dim=1) == labels)
