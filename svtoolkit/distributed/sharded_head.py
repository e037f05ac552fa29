"""A head for very many speakers: each process of a run has the rows of some classes and sees the crops of all.

The linear layer is parallel over its classes as torch's ColwiseParallel is: embeddings are gathered before it, and the
parts of their gradient that the processes find are summed and scattered after it, both by DTensor. The cross entropy
of such logits is computed here. torch's ``loss_parallel`` computes the same (a test compares them), but for as long as
it is in force it replaces operators of the whole process, and it has to be in force in the backward pass, which is the
caller's; it waits for ever where its way of dividing leaves a process without a class; and it looks for the largest
logit a second time, which the hits need anyway.

The weights are plain tensors. As DTensors each process would have ceil(classes / processes) of them, which leaves none
of five classes to the fourth of four processes and cuts blocks of 8-bit optimizer state in two, and ``full_tensor``
puts the whole head on every device where the first process needs it on the CPU. FSDP2 gathers all weights on every
device for each pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.amp import GradScaler
from torch.autograd.function import once_differentiable

from svtoolkit.distributed.class_shards import ClassShard, gather_optimizer_state, gather_rows, shard_optimizer_state
from svtoolkit.losses.head import ClassificationHead, Head, HeadOutput

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class ShardedHead(Head):
    """The shard that one process has of a head; any head whose parameters have a row for each class.

    Losses, hits and the gradients of embeddings are those of the whole head up to rounding; the margin is applied where
    the class of the crop is. Gradients of the weights are averaged over processes, as replicas have theirs: that of the
    sum of the losses of all processes, divided by their number. All processes call ``forward``, and the backward pass
    after it, together and with equally many crops.

    Args:
        head: the whole one, the same in all processes, on any device; only the rows of the shard are kept.
        shard: which classes to keep.

    Attributes:
        local: the head of the classes of ``shard``.

    Raises:
        ValueError: the head has a parameter or buffer that is not a row for each class.
    """

    is_replicated = False

    def __init__(self, head: ClassificationHead, shard: ClassShard) -> None:
        super().__init__()
        self.local = head
        self.shard = shard
        self.loss_name = head.loss_name
        self._mesh: DeviceMesh | None = None
        for name, tensor in head.state_dict(keep_vars=True).items():
            if tensor.shape[:1] != (shard.num_classes,):
                raise ValueError(f"{name} is {tuple(tensor.shape)}, expected a row for each of {shard.num_classes}")
            tensor.data = tensor.data[shard.start : shard.stop].clone()
        for parameter in head.parameters():
            parameter.register_hook(lambda gradient: gradient / shard.size)

    @property
    def num_classes(self) -> int:
        return self.shard.num_classes

    @property
    def margin(self) -> float:
        """As of a whole head; set by the schedule before every step."""
        return self.local.margin

    @margin.setter
    def margin(self, value: float) -> None:
        self.local.margin = value

    def forward(self, embeddings: Tensor, labels: Tensor) -> HeadOutput:
        """This process's crops: (batch, embedding_dim), (batch,) int64, of all classes -> losses and hits, (batch,)."""
        own = slice(self.shard.rank * len(labels), (self.shard.rank + 1) * len(labels))
        with torch.autocast(embeddings.device.type, enabled=False):
            everyone = self._gather(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)))
            every_label = _all_of(labels)
            similarities = self.local.similarities(everyone)
            is_here = (every_label >= self.shard.start) & (every_label < self.shard.stop)
            columns = torch.where(is_here, every_label - self.shard.start, 0).unsqueeze(1)
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
        from torch.distributed.device_mesh import DeviceMesh  # a second to import
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

        if self._mesh is None:
            with unset_fake_temporarily():  # DeviceMesh reads numbers of its tensor
                assert dist.group.WORLD is not None
                self._mesh = DeviceMesh.from_group(dist.group.WORLD, rows.device.type)
        whole = DTensor.from_local(rows, self._mesh, [Shard(0)], run_check=False).redistribute(placements=[Replicate()])
        return whole.to_local(grad_placements=[Partial()])

    def _best_classes(self, *similarities: Tensor) -> tuple[Tensor, Tensor]:
        """Some (crops, classes here) -> the largest of all classes, and the first class that has it; (some, crops)."""
        here, column = (torch.stack(parts) for parts in zip(*(each.max(dim=1) for each in similarities), strict=True))
        largest = here.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        best = torch.where(here == largest, self.shard.start + column, self.shard.num_classes)
        dist.all_reduce(best, dist.ReduceOp.MIN)
        return largest, best

    def trial_losses(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Of as many copies of the process's own embeddings as all processes have embeddings."""
        everyone, every_label = (rows.repeat_interleave(self.shard.size, dim=0) for rows in (embeddings, labels))
        return self.local(everyone, every_label).losses

    def clip_grad_norm_(self, network: Iterable[nn.Parameter], max_norm: float) -> Tensor:
        """The norm is that of network and whole head, the same in all processes."""
        network, ours = list(network), list(self.parameters())
        squares = nn.utils.get_total_norm([p.grad for p in ours if p.grad is not None]).square()
        dist.all_reduce(squares)
        replicated = nn.utils.get_total_norm([p.grad for p in network if p.grad is not None])
        norm = (replicated.square() + squares).sqrt()
        nn.utils.clip_grads_with_norm_([*network, *ours], max_norm, norm)
        return norm

    def build_scaler(self, device: torch.device, enabled: bool) -> GradScaler:
        """torch's for FSDP: processes have gradients of their own, and an overflow in one of them is one in all."""
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler  # a second to import

        return ShardedGradScaler(device.type, enabled=enabled)

    def gather_head_state(self) -> dict[str, Tensor]:
        """On the CPU of the first process; elsewhere the shard."""
        return OrderedDict((name, gather_rows(tensor, self.shard)) for name, tensor in self.local.state_dict().items())

    def gather_optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return gather_optimizer_state(optimizer.state_dict(), self.local, self.shard)

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        block_size = optimizer.defaults.get("block_size", 1)
        optimizer.load_state_dict(shard_optimizer_state(state, self.local, self.shard, block_size))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take the shard's rows of the state of a whole head.

        Raises:
            RuntimeError: it is of another head, as torch says it, or of another number of classes.
            ValueError: ``assign``, which would lose the mean over processes that the parameters' gradients are.
        """
        if assign:
            raise ValueError("a shard copies what it loads; leave assign at False")
        for name, tensor in state_dict.items():
            if len(tensor) != self.shard.num_classes:
                raise RuntimeError(f"size mismatch for {name}: {len(tensor)} classes, not {self.shard.num_classes}")
        rows = slice(self.shard.start, self.shard.stop)
        return self.local.load_state_dict({name: tensor[rows] for name, tensor in state_dict.items()}, strict=strict)


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
