"""A head for very many speakers: each process of a run has the rows of some classes and sees the crops of all.

The linear layer is parallel over its classes as torch's ColwiseParallel is: embeddings are gathered before it, and the
parts of their gradient that the processes find are summed and scattered after it, both by DTensor. The cross entropy
of such logits is computed here. torch's ``loss_parallel`` computes the same (a test compares them), but for as long as
it is in force it replaces operators of the whole process, and it has to be in force in the backward pass, which is the
caller's; it waits for ever where its way of dividing leaves a process without a class; and it looks for the largest
logit a second time, which the hits need anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svtoolkit.errors import UserError
from svtoolkit.losses.head import ClassificationHead, HeadOutput

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class ClassShare(NamedTuple):
    """Which classes a process has: from ``start`` to below ``stop`` of ``num_classes``; it is ``rank`` of ``size``."""

    start: int
    stop: int
    num_classes: int
    rank: int
    size: int


def share_classes(num_classes: int, *, rank: int, size: int, multiple: int = 1) -> ClassShare:
    """Shares of equally many times ``multiple`` classes, or of one time more; the last one may lack some of its last.

    Raises:
        UserError: a process would be left without a class.
    """
    units = -(-num_classes // multiple)
    if units < size:
        raise UserError(
            f"loss.shard=true: {num_classes} classes (speakers x speeds) cannot be shared by {size} processes"
            f"{f' in blocks of {multiple}, as the 8-bit optimizer needs' if multiple > 1 else ''}; "
            "set loss.shard=false, or use fewer devices"
        )
    least, more = divmod(units, size)
    start, stop = (min(num_classes, multiple * (least * r + min(more, r))) for r in (rank, rank + 1))
    return ClassShare(start, stop, num_classes, rank, size)


class ShardedHead(nn.Module):
    """The share that one process has of a head; any head whose parameters have a row for each class.

    Losses, hits and the gradients of embeddings are those of the whole head up to rounding; the margin is applied where
    the class of the crop is. Gradients of the weights are averaged over processes, as replicas have theirs: that of the
    sum of the losses of all processes, divided by their number. All processes call ``forward``, and the backward pass
    after it, together and with equally many crops.

    Args:
        head: the whole one, the same in all processes, on the CPU or where the share is to stay; it is cut.
        share: which classes to keep.

    Attributes:
        local: the head of the classes of ``share``.

    Raises:
        ValueError: the head has a parameter or buffer that is not a row for each class.
    """

    def __init__(self, head: ClassificationHead, share: ClassShare) -> None:
        super().__init__()
        self.local = head
        self.share = share
        self._mesh: DeviceMesh | None = None
        for name, tensor in head.state_dict(keep_vars=True).items():
            if tensor.shape[:1] != (share.num_classes,):
                raise ValueError(f"{name} is {tuple(tensor.shape)}, expected a row for each of {share.num_classes}")
            tensor.data = tensor.data[share.start : share.stop].clone()
        for parameter in head.parameters():
            parameter.register_hook(lambda gradient: gradient / share.size)

    @property
    def num_classes(self) -> int:
        """Of the whole head."""
        return self.share.num_classes

    @property
    def margin(self) -> float:
        """As of a whole head; set by the schedule before every step."""
        return self.local.margin

    @margin.setter
    def margin(self, value: float) -> None:
        self.local.margin = value

    def connect(self, device_type: str) -> None:
        """Where all are: what embeddings travel over. ``forward`` does it itself; FakeTensorMode has no room for it."""
        from torch.distributed.device_mesh import DeviceMesh  # a second to import

        assert dist.group.WORLD is not None
        self._mesh = DeviceMesh.from_group(dist.group.WORLD, device_type)

    def forward(self, embeddings: Tensor, labels: Tensor) -> HeadOutput:
        """Of one's own crops: (batch, embedding_dim), (batch,) int64, classes of the whole -> as of a whole head."""
        own = slice(self.share.rank * len(labels), (self.share.rank + 1) * len(labels))
        with torch.autocast(embeddings.device.type, enabled=False):
            everyone = self._gather(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)))
            every_label = _all_of(labels)
            similarities = self.local.similarities(everyone)
            is_here = (every_label >= self.share.start) & (every_label < self.share.stop)
            columns = torch.where(is_here, every_label - self.share.start, 0).unsqueeze(1)
            target = similarities.gather(1, columns).squeeze(1)
            harder = torch.where(is_here, self.local.with_margin(target), target)
            logits = similarities.scatter(1, columns, harder.unsqueeze(1))
            largest, best = self._best_classes(logits.detach(), similarities.detach())
            losses = _CrossEntropy.apply(
                self.local.scale * logits, columns, is_here, self.local.scale * largest[0], own
            )
        correct, correct_no_margin = best[:, own] == labels
        return HeadOutput(losses, correct, correct_no_margin)

    def _gather(self, rows: Tensor) -> Tensor:
        """(batch, n) -> (processes x batch, n); the gradient of a row is the sum of what all processes found."""
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # a second to import

        if self._mesh is None:
            self.connect(rows.device.type)
        whole = DTensor.from_local(rows, self._mesh, [Shard(0)], run_check=False).redistribute(placements=[Replicate()])
        return whole.to_local(grad_placements=[Partial()])

    def _best_classes(self, *similarities: Tensor) -> tuple[Tensor, Tensor]:
        """Some (crops, classes here) -> the largest of all classes, and the first class that has it; (some, crops)."""
        here, column = (torch.stack(parts) for parts in zip(*(each.max(dim=1) for each in similarities), strict=True))
        largest = here.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        best = torch.where(here == largest, self.share.start + column, self.share.num_classes)
        dist.all_reduce(best, dist.ReduceOp.MIN)
        return largest, best

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take one's share of the state of a whole head.

        Raises:
            RuntimeError: it is of another head, as torch says it, or of another number of classes.
            ValueError: ``assign``, which would lose the mean over processes that the parameters' gradients are.
        """
        if assign:
            raise ValueError("a share copies what it loads; leave assign at False")
        for name, tensor in state_dict.items():
            if len(tensor) != self.share.num_classes:
                raise RuntimeError(f"size mismatch for {name}: {len(tensor)} classes, not {self.share.num_classes}")
        rows = slice(self.share.start, self.share.stop)
        cut = {name: tensor[rows] for name, tensor in state_dict.items()}
        return self.local.load_state_dict(cut, strict=strict)


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy of the crops ``own`` from the logits (crops, classes here) that every process has of all crops.

    Args:
        columns: (crops, 1) of the true classes, 0 where another process has it; ``is_here``: (crops,).
        largest: (crops,), of the logits of all classes.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, columns: Tensor, is_here: Tensor, largest: Tensor, own: slice) -> Tensor:
        shifted = logits - largest.unsqueeze(1)
        target = torch.where(is_here, shifted.gather(1, columns).squeeze(1), 0.0)
        probabilities = shifted.exp_()
        sums = torch.stack([probabilities.sum(dim=1), target])
        dist.all_reduce(sums)
        ctx.save_for_backward(probabilities.div_(sums[0].unsqueeze(1)), columns, is_here)
        return (sums[0].log() - sums[1])[own]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own_gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        probabilities, columns, is_here = ctx.saved_tensors
        gradient = _all_of(own_gradient)
        at_target = torch.where(is_here, -gradient, 0.0)
        gradient = (probabilities * gradient.unsqueeze(1)).scatter_add_(1, columns, at_target.unsqueeze(1))
        return gradient, None, None, None, None


def _all_of(values: Tensor) -> Tensor:
    """(batch,) of this process -> (processes x batch,), without a gradient."""
    values = values.contiguous()
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return torch.cat(parts)
