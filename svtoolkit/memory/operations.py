"""What an operation computes and moves, counted as it is dispatched: floating-point operations and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry

from svtoolkit.memory.growth import Growth
from svtoolkit.memory.observer import Observer

CONVOLUTIONS = {torch.ops.aten.convolution, torch.ops.aten.convolution_backward, torch.ops.aten._convolution}
NORMS = {torch.ops.aten.native_batch_norm, torch.ops.aten._native_batch_norm_legit}
"""The second is in the graphs that torch makes."""


def passes(operation: Any, args: Any) -> float:
    """Bytes that an operation moves, of the bytes of its inputs and results: some go over them more than once."""
    if operation in NORMS:
        return 3 / 2 if args[-3] else 1.0  # in training the input is read for its statistics, then to be normalised
    if operation is torch.ops.aten.copy_:
        return 2 / 3  # what is overwritten is not read
    if operation is torch.ops.aten.native_batch_norm_backward:
        return 5 / 3 if args[7] and args[9][0] else 1.0  # two inputs are read for sums, then for the one result
    return 1.0


FREE = {getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view")}
"""Take memory and move nothing; so do views, which their schema tells."""


class Work(NamedTuple):
    """What one operation does.

    Attributes:
        rate: what decides how fast its arithmetic is: convolution or product, of 32 or 16 bits; other: none is counted.
        flops, bytes: a multiplication with addition is two.
        flops_per_crop, bytes_per_crop: what grows with the batch, for each crop of it.
    """

    rate: str
    flops: float
    flops_per_crop: float
    bytes: float
    bytes_per_crop: float


class Operations(TorchDispatchMode):
    """Context that sums up torch's own counts of operations, of which a multiplication with addition is two.

    FlopCounterMode would need a pass of its own: it hooks into modules and gradients to tell whose an operation is.

    Attributes:
        count: so far.
    """

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += count_flops(func._overloadpacket, args, kwargs or {}, result)
        return result


class WorkLog(Observer):
    """Context that notes the work of every operation, forward, backward and recomputation alike.

    Args:
        growth: that tells what of the step grows with its batch.

    Attributes:
        work: how often each was done, since the last ``take``.
        largest_convolution: bytes of input and result of each crop, of the convolution where that is most.
        has_norm_of_batch: whether a BatchNorm has a single value of each crop in a channel, so that it needs two crops.
    """

    def __init__(self, growth: Growth) -> None:
        super().__init__()
        self.growth = growth
        self.work: Counter[Work] = Counter()
        self.largest_convolution = 0.0
        self.has_norm_of_batch = False
        self._known: dict[Hashable, Work] = {}

    def take(self) -> Counter[Work]:
        """What was noted since the last time."""
        work, self.work = self.work, Counter()
        return work

    def mark(self) -> Counter[Work]:
        """As ``svtoolkit.reversible.parts.Counts``."""
        return self.work.copy()

    def repeat(self, mark: Counter[Work], times: int) -> None:
        """As ``svtoolkit.reversible.parts.Counts``."""
        for work, count in (self.work - mark).items():
            self.work[work] += times * count

    def see(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, form: Hashable) -> None:
        operation = func._overloadpacket
        if func.is_view or operation in FREE or func.namespace == "prim":
            return
        work = None if form is None else self._known.get(form)
        if work is None:
            work = self._work(operation, args, kwargs, result)
            if form is not None:
                self._known[form] = work
        self.work[work] += 1

    def _work(self, operation: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Work:
        if operation is torch.ops.aten.native_batch_norm:
            shape = args[0].shape
            self.has_norm_of_batch |= shape.numel() // shape[1] == self.growth.batch
        if operation is torch.ops.aten.convolution:
            moved = args[0].nbytes + result.nbytes
            self.largest_convolution = max(self.largest_convolution, moved / self.growth.batch)
        flops = count_flops(operation, args, kwargs, result)
        size, per_crop = self._bytes((args, kwargs, result))
        times = passes(operation, args)
        flops_per_crop = self.growth.slope(flops)
        return Work(
            _rate(operation, args) if flops else "other",
            float(flops) if flops_per_crop is None else 0.0,
            float(flops_per_crop or 0.0),
            times * size,
            times * per_crop,
        )

    def _bytes(self, values: Iterable[Any]) -> tuple[int, float]:
        """Bytes of all tensors, those that do not grow with the batch and those of each crop."""
        size, per_crop = 0, 0.0
        for tensor in tensors_of(values):
            nbytes = min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
            slope = self.growth.slope(nbytes)
            if slope is None:
                size += nbytes
            else:
                per_crop += slope
        return size, per_crop


def count_flops(operation: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Floating-point operations of one that was dispatched."""
    if operation is torch.ops.aten.convolution_backward:
        return _of_convolution_backward(*args)
    if operation is torch.ops.aten.mkldnn_rnn_layer:  # as which a CPU runs a layer of an LSTM
        inputs, from_input, from_state = args[:3]
        return 2 * int(inputs.shape[0] * inputs.shape[1] * (from_input.numel() + from_state.numel()))
    count: Callable[..., int] | None = flop_registry.get(operation)
    return 0 if count is None else count(*args, **kwargs, out_val=result)


def _of_convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *rest: Any) -> int:
    """Each of the gradients of input and weight costs what the convolution did; torch's own count of the second knows
    no groups, and takes a depthwise convolution for a whole one.
    """
    *_, wanted = rest
    return sum(wanted[:2]) * conv_flop_count([*inputs.shape], [*weight.shape], [*gradient.shape])


def _rate(operation: Any, args: Any) -> str:
    bits = 8 * next(tensors_of(args)).element_size()
    return f"{'convolution' if operation in CONVOLUTIONS else 'product'} {min(bits, 32)}"


def tensors_of(values: Any) -> Iterator[Tensor]:
    """Those in nests of lists, tuples and dicts."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list, dict)):
            yield from tensors_of(value)
