"""Which classes each process has of a sharded head, and how state is put together of all shards and divided again."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from svtoolkit.errors import UserError


class ClassShard(NamedTuple):
    """Which classes a process has: from ``start`` to below ``stop`` of ``num_classes``; it is ``rank`` of ``size``."""

    start: int
    stop: int
    num_classes: int
    rank: int
    size: int


def shard_classes(num_classes: int, *, rank: int, size: int, multiple: int = 1) -> ClassShard:
    """Shards of equally many times ``multiple`` classes, or of one time more; the last one may lack some of its last.

    Raises:
        UserError: a process would be left without a class.
    """
    units = -(-num_classes // multiple)
    if units < size:
        raise UserError(
            f"loss.shard=true: {num_classes} classes (speakers x speeds x warps) cannot be divided among {size} "
            f"processes{f' in blocks of {multiple}, as the 8-bit optimizer needs' if multiple > 1 else ''}; "
            "set loss.shard=false, or use fewer devices"
        )
    least, more = divmod(units, size)
    start, stop = (min(num_classes, multiple * (least * r + min(more, r))) for r in (rank, rank + 1))
    return ClassShard(start, stop, num_classes, rank, size)


def gather_rows(part: Tensor, shard: ClassShard) -> Tensor:
    """The parts of all processes along the first axis, in the first one, on the CPU; one part at a time travels.

    In the other processes it is their own part. All processes call this.
    """
    lengths = [0] * shard.size
    dist.all_gather_object(lengths, len(part))
    if shard.rank:
        dist.send(part.contiguous(), 0)
        return part
    whole = torch.empty(sum(lengths), *part.shape[1:], dtype=part.dtype)
    for rank, rows in enumerate(whole.split(lengths)):
        if rank:
            received = part.new_empty(rows.shape)
            dist.recv(received, rank)
            rows.copy_(received)
        else:
            rows.copy_(part)
    return whole


def gather_optimizer_state(state: dict[str, Any], local: nn.Module, shard: ClassShard) -> dict[str, Any]:
    """An optimizer's ``state_dict``, whose last parameters are those of ``local``, with the state of all shards.

    Entries of a parameter of the head that are tensors with an axis are rows, values or blocks of them, in the order of
    the classes; others are the same in all processes. All processes call this; the first one has the result.
    """
    whole = dict(state["state"])
    for number in _numbers_of_head(state, local):
        if number in whole:
            whole[number] = {
                key: gather_rows(value, shard) if _is_per_class(value) else value
                for key, value in whole[number].items()
            }
    return {**state, "state": whole}


def shard_optimizer_state(
    state: dict[str, Any], local: nn.Module, shard: ClassShard, block_size: int
) -> dict[str, Any]:
    """The inverse of ``gather_optimizer_state``: the shard of this process.

    Args:
        block_size: values of the state that have a scale in common, where it has scales.

    Raises:
        ValueError: an entry is neither rows nor values nor blocks of a parameter of the whole head.
    """
    sharded = dict(state["state"])
    for number, parameter in zip(_numbers_of_head(state, local), local.parameters(), strict=True):
        row = parameter[0].numel()
        sharded[number] = {
            key: _shard_entry(value, row, shard, block_size) if _is_per_class(value) else value
            for key, value in sharded.get(number, {}).items()
        }
        if not sharded[number]:
            del sharded[number]
    return {**state, "state": sharded}


def _numbers_of_head(state: dict[str, Any], local: nn.Module) -> list[Any]:
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    return numbers[-len(list(local.parameters())) :]


def _is_per_class(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _shard_entry(entry: Tensor, row: int, shard: ClassShard, block_size: int) -> Tensor:
    """Rows, values or blocks of the classes of a shard; ``row`` is the number of values of a class."""
    for values in (1, row, block_size):  # that an element along the first axis stands for
        if len(entry) == -(-shard.num_classes * row // values):
            return entry[-(-shard.start * row // values) : -(-shard.stop * row // values)].clone()
    raise ValueError(f"the optimizer's state has {len(entry)} entries for {shard.num_classes} classes of {row} values")
