"""Fake tensors at a fraction of the time: what an operation makes of arguments of one form is worked out once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

UNLIKE_OTHERS = {"set_", "resize_", "resize_as_", "lift_fresh", "_local_scalar_dense"}
"""Operations of which forms do not tell all."""
TAGS = (torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}


class QuickFakeTensorMode(FakeTensorMode):
    """FakeTensorMode with a memory for operations on tensors of the CPU whose results follow from their forms.

    torch's own memory asks for so many properties of every argument that it takes most of the time of a step. This one
    is of the process.

    Attributes:
        observers: to whom every operation is shown when it is done.
    """

    def __init__(self, *, allow_non_fake_inputs: bool = False) -> None:
        super().__init__(allow_non_fake_inputs=allow_non_fake_inputs)
        self.cache_enabled = False  # of torch's own
        self.observers: list[Any] = []
        self._is_inside = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE and type(args[0]) is FakeTensor:  # asked for as often as all operations together
            return args[0].fake_device
        kwargs = kwargs or {}
        is_outermost = not self._is_inside
        key = _key(func, args, kwargs)
        known = None if key is None else _KNOWN.get(key)
        if known is not None:
            result = known.made(args, self)
        else:
            self._is_inside = True  # of what an operation is made of, nobody is told
            try:
                result = self._result(func, types, args, kwargs)
            finally:
                self._is_inside = not is_outermost
            if key is not None and key not in _KNOWN:
                if len(_KNOWN) >= MOST_KNOWN:
                    _KNOWN.clear()
                _KNOWN[key] = _results(result, args) if _key(func, args, kwargs) == key else None
        if is_outermost:
            for observer in self.observers:
                observer.see(func, args, kwargs, result, key)
        return result

    def _result(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """By torch; of a BatchNorm in training, of which torch would go through every operation, from its forms."""
        if func is NORM and args[5] and not kwargs:
            like = args[0]
            row = _Fresh(torch.Size((like.shape[1],)), (1,), like.dtype, _attributes(like))
            return _like(like).made(args, self), row.made(args, self), row.made(args, self)
        if func is NORM_BACKWARD and args[7] and all(args[9]) and args[2] is not None and not kwargs:
            return tuple(_like(each).made(args, self) for each in (args[1], args[2], args[2]))
        return super().__torch_dispatch__(func, types, args, kwargs)


DEVICE = torch.ops.prim.device.default
NORM, NORM_BACKWARD = torch.ops.aten.native_batch_norm.default, torch.ops.aten.native_batch_norm_backward.default


def _key(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Equal for operations with results of equal forms; None: their arguments do not tell them."""
    if not _is_told_by_forms(func):
        return None
    try:
        named = _form(tuple(kwargs.items())) if kwargs else None
        return func, _form(args), named, torch.get_default_dtype(), torch.is_inference_mode_enabled()
    except _UnlikeOthersError:
        return None


class _UnlikeOthersError(Exception):
    """An argument that is more than its form."""


@cache
def _is_told_by_forms(func: Any) -> bool:
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace == "aten"
        and func._schema.name.removeprefix("aten::") not in UNLIKE_OTHERS
        and not any(tag in func.tags for tag in TAGS)
    )


def _form(values: Iterable[Any]) -> tuple[Any, ...]:
    """What decides on the form of results."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            shape = value.shape
            is_number = not shape and value.is_floating_point()  # which may be a wrapped one
            if is_number or value.constant is not None or value.fake_device != CPU:
                raise _UnlikeOthersError
            found.append((shape, value.stride(), value.dtype, value.storage_offset()))
        elif kind in PLAIN:
            found.append((kind, value))
        elif kind in (tuple, list):
            found.append(_form(value))
        else:
            raise _UnlikeOthersError
    return tuple(found)


CPU = torch.device("cpu")


class _Fresh(NamedTuple):
    """A new tensor."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    attributes: dict[str, Any]

    def made(self, args: Any, mode: FakeTensorMode) -> Tensor:
        inner = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
        return _fake(inner, self.attributes, mode)


def _attributes(tensor: FakeTensor) -> dict[str, Any]:
    return {name: value for name, value in tensor.__dict__.items() if name != "fake_mode"}


def _like(tensor: FakeTensor) -> _Fresh:
    """As ``torch.empty_like``."""
    inner = torch.empty_like(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"))
    return _Fresh(tensor.shape, inner.stride(), tensor.dtype, _attributes(tensor))


def _fake(inner: Tensor, attributes: dict[str, Any], mode: FakeTensorMode) -> Tensor:
    made = Tensor._make_subclass(FakeTensor, inner, False, dispatch_device=True, device_for_backend_keys=CPU)
    torch._C._set_throw_on_mutable_data_ptr(made)
    made.__dict__.update(attributes, fake_mode=mode)
    return made


class _View(NamedTuple):
    """Of the storage of one of the tensors among the arguments."""

    source: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    attributes: dict[str, Any]

    def made(self, args: Any, mode: FakeTensorMode) -> Tensor:
        inner = torch.empty_strided((0,), (1,), dtype=self.dtype, device="meta")
        inner.set_(args[self.source].untyped_storage(), self.offset, self.shape, self.stride)
        return _fake(inner, self.attributes, mode)


class _Results(NamedTuple):
    """Of one operation: new tensors, views and numbers of arguments, None."""

    each: tuple[_Fresh | _View | int | None, ...]
    kind: type | None

    def made(self, args: Any, mode: FakeTensorMode) -> Any:
        made = [
            each if each is None else args[each] if isinstance(each, int) else each.made(args, mode)
            for each in self.each
        ]
        return made[0] if self.kind is None else self.kind(made)


_KNOWN: dict[Any, _Results | None] = {}
MOST_KNOWN = 50_000
"""Operations on arguments of one form, of which a step of a large network has some hundreds."""


def _results(result: Any, args: Any) -> _Results | None:
    """How to make the results again; None: they are more than their forms."""
    kind = tuple if isinstance(result, tuple) else list if isinstance(result, list) else None
    given = {id(arg.untyped_storage()): number for number, arg in enumerate(args) if isinstance(arg, Tensor)}
    nested = [each for arg in args if isinstance(arg, (tuple, list)) for each in arg if isinstance(each, Tensor)]
    given |= {id(each.untyped_storage()): -1 for each in nested}
    found: list[_Fresh | _View | int | None] = []
    for each in result if kind else (result,):
        if each is None:
            found.append(None)
            continue
        if type(each) is not FakeTensor:
            return None
        position = next((number for number, arg in enumerate(args) if arg is each), None)
        if position is not None:
            found.append(position)
            continue
        if each.fake_device != CPU or each.constant is not None or each.layout is not torch.strided:
            return None
        attributes = _attributes(each)
        source = given.get(id(each.untyped_storage()))
        if source is not None:
            if source < 0 or each.dtype is not args[source].dtype:
                return None
            offset = int(each.storage_offset())
            found.append(_View(source, each.shape, each.stride(), each.dtype, offset, attributes))
            continue
        fresh = _Fresh(each.shape, each.stride(), each.dtype, attributes)
        again = torch.empty_strided(fresh.shape, fresh.stride, dtype=fresh.dtype, device="meta")
        if each.storage_offset() or again.untyped_storage().nbytes() != each.untyped_storage().nbytes():
            return None
        found.append(fresh)
    return _Results(tuple(found), kind)
