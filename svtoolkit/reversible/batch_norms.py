"""BatchNorm of a part of a batch, as it would be with all of the batch.

What BatchNorm does to an utterance depends on the others by four numbers a channel alone: mean and variance of its
input and, for the gradient, the sums of dy and of dy * x_hat (Ioffe & Szegedy 2015, sec. 3). Where these are known, a
part of the batch is evaluated and differentiated without the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode, wrap_torch_function

from svtoolkit.reversible.recomputation import RandomState

UNKNOWN = frozenset({torch.batch_norm, torch.native_batch_norm, torch.cudnn_batch_norm, torch.batch_norm_stats})
"""Other ways to a batch's statistics, which are not looked into."""


class Norm(NamedTuple):
    """Of one call of ``batch_norm`` in training, over all of the batch.

    Attributes:
        mean, inverse: mean and 1 / sqrt(variance + eps) of every channel, (channels,).
        eps: what was added to the variance.
        values: how many each channel has.
    """

    mean: Tensor
    inverse: Tensor
    eps: float
    values: int

    @property
    def variance(self) -> Tensor:
        return self.inverse.pow(-2) - self.eps


class Sums(NamedTuple):
    """Of dy * x_hat and of dy over the batch, (channels,) each: gradients of a norm's weight and bias."""

    weight: Tensor
    bias: Tensor


class Recording(TorchFunctionMode):
    """Notes the statistics that norms find; they do what they would do otherwise, with the same kernels.

    Attributes:
        norms: in order of calls; None: they are not all understood.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norms: list[Norm] | None = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func in UNKNOWN:
            self.norms = None
        if func is F.batch_norm and self.norms is not None and _Call(*args, **given).training:
            return self._norm(_Call(*args, **given))
        return func(*args, **given)

    def _norm(self, call: _Call) -> Tensor:
        count = call.x.numel() // call.x.shape[1]
        if count == 1:  # an error, which says so
            return F.batch_norm(*call)
        result, mean, inverse, *_ = torch._batch_norm_impl_index(
            call.x, call.weight, call.bias, call.mean, call.variance, True, call.momentum, call.eps,
            torch.backends.cudnn.enabled,
        )  # fmt: skip
        assert self.norms is not None
        if mean.dtype in (torch.float16, torch.bfloat16):  # of what has no parameter of single precision
            variance, mean = torch.var_mean(call.x.float(), _all_but_channels(call.x), correction=0)
            inverse = torch.rsqrt(variance + call.eps)
        self.norms.append(Norm(mean, inverse, call.eps, count))
        return result


class _Call(NamedTuple):
    """Arguments of ``F.batch_norm``."""

    x: Tensor
    mean: Tensor | None
    variance: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5


@contextmanager
def recorded_norms(device: torch.device) -> Iterator[Recording]:
    """Context of an evaluation of a whole batch, after which its norms are known; one that draws random numbers has
    none.
    """
    random, recording = RandomState(device), Recording()
    with recording:
        yield recording
    if random.is_consumed():
        recording.norms = None


class KnownNorms(TorchFunctionMode):
    """Norms of a whole batch take the statistics that they found before: their input is not read for these again.

    Args:
        norms: in order of calls.
    """

    def __init__(self, norms: Sequence[Norm]) -> None:
        super().__init__()
        self._norms = iter(norms)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is F.batch_norm and _Call(*args, **given).training:
            call, norm = _Call(*args, **given), next(self._norms, None)
            if norm is not None:
                return known_batch_norm(call.x, call.weight, call.bias, norm)
        return func(*args, **given)


def known_norms(norms: Sequence[Norm] | None) -> AbstractContextManager[object]:
    """Context of a second evaluation of a whole batch; None: nothing is known of the first."""
    return KnownNorms(norms) if norms else nullcontext()


@wrap_torch_function(lambda x, *others: (x,))
def known_batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, norm: Norm) -> Tensor:
    """What a norm makes of a whole batch, of which the statistics are known; with the gradient of BatchNorm."""
    return _Known.apply(x, weight, bias, norm) if torch.is_grad_enabled() else normalised(x, weight, bias, norm)


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, norm: Norm) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.norm = norm
        return normalised(x, weight, bias, norm)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        found = torch.ops.aten.native_batch_norm_backward(
            upstream[0], x, weight, None, None, ctx.norm.mean, ctx.norm.inverse, True, ctx.norm.eps,
            [*ctx.needs_input_grad[:3]],
        )  # fmt: skip
        return *(each if needed else None for each, needed in zip(found, ctx.needs_input_grad, strict=False)), None


class PartOfBatch(TorchFunctionMode):
    """Norms of a part of the batch take their statistics from the whole while it is entered.

    Args:
        norms: of the whole batch, in order of calls.
        sums: of those whose gradient is to be computed; None: not known yet.
        collects: norms whose sums are to be found: autograd's graph begins with what they make.
        adds_sums: whether gradients of weights and biases of norms are those of the whole batch; else there are none.

    Attributes:
        calls: norms so far.
        is_understood: whether all were called where autograd sees them.
        begins: number -> input of norms whose sums are to be found, and where the gradient of what they make arrives.
        nodes: number -> autograd's node of each norm that has one.
    """

    def __init__(
        self, norms: list[Norm], sums: list[Sums | None], collects: frozenset[int] = frozenset(), *, adds_sums: bool
    ) -> None:
        super().__init__()
        self.norms, self.sums, self.collects, self.adds_sums = norms, sums, collects, adds_sums
        self.calls, self.is_understood = 0, True
        self.begins: dict[int, tuple[Tensor, GradientEdge]] = {}
        self.nodes: dict[int, Any] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if self.collects:
            args = tuple(_detached(arg) for arg in args)
            given = {key: _detached(arg) for key, arg in given.items()}
        if func is F.batch_norm and _Call(*args, **given).training:
            return self._norm(_Call(*args, **given))
        return func(*args, **given)

    def _norm(self, call: _Call) -> Tensor:
        number, self.calls = self.calls, self.calls + 1
        if not torch.is_grad_enabled() or number >= len(self.norms):
            self.is_understood = False
            return F.batch_norm(*call)
        norm = self.norms[number]
        if number in self.collects:
            with torch.no_grad():
                result = normalised(call.x, call.weight, call.bias, norm)
            begin: Tensor = _Begin.apply(torch.empty(0, requires_grad=True), result)
            self.begins[number] = call.x.detach(), get_gradient_edge(begin)
            return begin
        result = _Normalised.apply(call.x, call.weight, call.bias, norm, self.sums[number], self.adds_sums)
        if result.grad_fn is not None:
            self.nodes[number] = result.grad_fn
        return result


class _Begin(torch.autograd.Function):
    """Where autograd's graph begins; unlike a leaf, what is given may be modified in place."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, result: Tensor) -> Tensor:
        ctx.mark_dirty(result)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, None


class _Normalised(torch.autograd.Function):
    """Batch normalisation of a part of the batch, of which all that concerns the whole is known."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, norm: Norm, sums: Sums | None, adds_sums: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.norm, ctx.sums, ctx.adds_sums = norm, sums, adds_sums
        return normalised(x, weight, bias, norm)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (dy,), sums = upstream, ctx.sums
        dw = sums.weight.clone() if ctx.needs_input_grad[1] and ctx.adds_sums else None
        db = sums.bias.clone() if ctx.needs_input_grad[2] and ctx.adds_sums else None
        dx = input_gradient(x, weight, dy, ctx.norm, sums) if ctx.needs_input_grad[0] else None
        return dx, dw, db, None, None, None


def sums_of(x: Tensor, dy: Tensor, norm: Norm) -> Sums:
    """Of a part of the batch: the input of a norm and the gradient of what it made."""
    _, weight, bias = torch.ops.aten.native_batch_norm_backward(
        dy, x, torch.ones_like(norm.mean), norm.mean, norm.variance, norm.mean, norm.inverse, False, norm.eps,
        [False, True, True],
    )  # fmt: skip
    return Sums(weight, bias)


def product_sums(x: Tensor, y: Tensor) -> Tensor:
    """Sums of x * y over all but the second dimension, each of them read once: (1, channels, 1, ...)."""
    nothing = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
    sums = sums_of(x, y, Norm(nothing, torch.ones_like(nothing), 0.0, 0)).weight
    return sums.view(1, -1, *[1] * (x.dim() - 2))


def levels_of(nodes: dict[int, Any]) -> dict[int, int]:
    """For every norm with a node of autograd, how many norms there are after it at most, one reading the other."""
    levels = dict.fromkeys(nodes, 0)
    numbers = {id(node): number for number, node in nodes.items()}
    for number in sorted(nodes, reverse=True):  # what reads a norm is called after it
        seen, pending = {id(None)}, [before for before, _ in nodes[number].next_functions]
        while pending:
            node = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if id(node) in numbers:
                before = numbers[id(node)]
                levels[before] = max(levels[before], levels[number] + 1)
            else:
                pending.extend(before for before, _ in node.next_functions)
    return levels


def normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None, norm: Norm) -> Tensor:
    """What a norm makes of a part of the batch."""
    return F.batch_norm(x, norm.mean, norm.variance, weight, bias, False, 0.0, norm.eps)


def input_gradient(
    x: Tensor, weight: Tensor | None, dy: Tensor, norm: Norm, sums: Sums, place: Tensor | None = None
) -> Tensor:
    """Of a part: weight / std * (dy - mean(dy) - x_hat * mean(dy * x_hat)), in two passes over the values.

    Args:
        place: ``x`` or ``dy``, which is overwritten where its type allows it.
    """
    scale = norm.inverse if weight is None else norm.inverse * weight
    slope = scale * norm.inverse * sums.weight / -norm.values
    offset = scale * sums.bias / -norm.values - slope * norm.mean
    shape = (1, -1, *[1] * (x.dim() - 2))
    terms = [(x, slope.view(shape)), (dy, scale.view(shape))]
    if place is dy:
        terms.reverse()
    with torch.autocast(x.device.type, enabled=False):
        out = place if place is not None and place.dtype == x.dtype == offset.dtype else None
        return torch.addcmul(offset.view(shape), *terms[0], out=out).addcmul_(*terms[1]).to(x.dtype)


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, nn.Parameter) else value
