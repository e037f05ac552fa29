"""A head that is spread over the processes, within a run whose files and decisions do not show it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp import GradScaler

from svtoolkit.config import OptimConfig
from svtoolkit.distributed.sharded_head import ClassShare, ShardedHead, share_classes
from svtoolkit.distributed.world import World
from svtoolkit.errors import UserError
from svtoolkit.losses import ClassificationHead
from svtoolkit.optim import AdamW8bit, SGD8bit


def shard_head(head: ClassificationHead, optim: OptimConfig, world: World) -> ShardedHead:
    """Cut the head to the share of this process.

    Shares begin where blocks of 8-bit state do, so that the state of the shares, one after the other, is that of the
    whole head.

    Raises:
        UserError: there are fewer classes than processes, or a share too small for 8-bit state.
    """
    block_size, smallest = getattr(optim, "block_size", 1), getattr(optim, "min_8bit_size", 0)
    num_classes = len(head.weight)
    rows = [parameter[0].numel() for parameter in head.parameters() if parameter.numel() >= smallest]
    multiple = math.lcm(*(block_size // math.gcd(block_size, row) for row in rows))
    shares = [share_classes(num_classes, rank=rank, size=world.size, multiple=multiple) for rank in range(world.size)]
    fewest = min(share.stop - share.start for share in shares)
    for row in rows:
        if fewest * row < smallest:
            raise UserError(
                f"loss.shard=true: a share of {fewest} classes x {row} values is below optim.min_8bit_size={smallest}, "
                f"which the whole head is not; set optim.min_8bit_size={fewest * row}, or use fewer devices"
            )
    return ShardedHead(head, shares[world.rank])


def refuse_foreign_state(optimizer: torch.optim.Optimizer) -> None:
    """A state can be put together from shares only where it is known how it is laid out.

    Raises:
        UserError: the optimizer is none of those here, such as the 8-bit ones of bitsandbytes.
    """
    if type(optimizer) not in (torch.optim.SGD, torch.optim.AdamW, SGD8bit, AdamW8bit):
        found = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
        raise UserError(
            f"loss.shard=true does not work with the state of {found}; choose optim=sgd, adamw, sgd_8bit or "
            "adamw_8bit, the 8-bit ones with optim.backend=torch instead of bitsandbytes"
        )


def build_scaler(device: torch.device, is_enabled: bool) -> GradScaler:
    """Where processes have gradients of their own, an overflow in one of them is one in all: torch's for FSDP."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler  # a second to import

    return ShardedGradScaler(device.type, enabled=is_enabled)


def clip_gradient(network: Iterable[nn.Parameter], head: ClassificationHead | ShardedHead, ceiling: float) -> Tensor:
    """``clip_grad_norm_`` of network and whole head, be it in shares; the norm is the same in all processes.

    Returns:
        the norm before clipping, ().
    """
    network, shared = list(network), list(head.parameters())
    if not isinstance(head, ShardedHead):
        return nn.utils.clip_grad_norm_([*network, *shared], ceiling)
    ours = nn.utils.get_total_norm([p.grad for p in shared if p.grad is not None])
    squares = ours.square()
    dist.all_reduce(squares)
    replicated = nn.utils.get_total_norm([p.grad for p in network if p.grad is not None])
    norm = (replicated.square() + squares).sqrt()
    nn.utils.clip_grads_with_norm_([*network, *shared], ceiling, norm)
    return norm


def whole_head(head: ShardedHead) -> dict[str, Tensor]:
    """State of the unsharded head in the first process, on the CPU; the share elsewhere. All processes call this."""
    return OrderedDict((name, _joined(tensor, head.share)) for name, tensor in head.local.state_dict().items())


def whole_optimizer(state: dict[str, Any], head: ShardedHead) -> dict[str, Any]:
    """The same of an optimizer's ``state_dict`` whose last parameters are those of the head.

    Entries of a parameter of the head that are tensors with an axis are rows, values or blocks of them, in the order of
    the classes; others are the same in all processes.
    """
    whole = dict(state["state"])
    for number in _numbers_of_head(state, head):
        if number in whole:
            whole[number] = {
                key: _joined(value, head.share) if _is_per_class(value) else value
                for key, value in whole[number].items()
            }
    return {**state, "state": whole}


def cut_optimizer(state: dict[str, Any], head: ShardedHead, block_size: int) -> dict[str, Any]:
    """The inverse of ``whole_optimizer``: the share of this process.

    Args:
        block_size: values of the state that share a scale, where it has scales.

    Raises:
        ValueError: an entry is neither rows nor values nor blocks of a parameter of the whole head.
    """
    cut = dict(state["state"])
    for number, parameter in zip(_numbers_of_head(state, head), head.parameters(), strict=True):
        row = parameter[0].numel()
        cut[number] = {
            key: _cut(value, row, head.share, block_size) if _is_per_class(value) else value
            for key, value in cut.get(number, {}).items()
        }
        if not cut[number]:
            del cut[number]
    return {**state, "state": cut}


def _numbers_of_head(state: dict[str, Any], head: ShardedHead) -> list[Any]:
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    return numbers[-len(list(head.parameters())) :]


def _is_per_class(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _cut(entry: Tensor, row: int, share: ClassShare, block_size: int) -> Tensor:
    """Rows, values or blocks of the classes of a share; ``row`` is the number of values of a class."""
    for values in (1, row, block_size):  # that an element along the first axis stands for
        if len(entry) == -(-share.num_classes * row // values):
            return entry[-(-share.start * row // values) : -(-share.stop * row // values)].clone()
    raise ValueError(f"the optimizer's state has {len(entry)} entries for {share.num_classes} classes of {row} values")


def _joined(part: Tensor, share: ClassShare) -> Tensor:
    """The parts of all processes along the first axis, in the first one, on the CPU; one part at a time travels."""
    lengths = [0] * share.size
    dist.all_gather_object(lengths, len(part))
    if share.rank:
        dist.send(part.contiguous(), 0)
        return part
    whole = torch.empty(sum(lengths), *part.shape[1:], dtype=part.dtype)
    for rank, place in enumerate(whole.split(lengths)):
        if rank:
            theirs = part.new_empty(place.shape)
            dist.recv(theirs, rank)
            place.copy_(theirs)
        else:
            place.copy_(part)
    return whole
