"""Activations that are computed again from others, which are kept anyway, when backward asks for them.

While a network runs under ``Recipes``, what BatchNorm and pointwise functions after it make is remembered as a recipe:
the function, and where its input comes from. Where autograd would keep such a result (the convolution that reads it,
ReLU), it keeps the recipe. The input of a BatchNorm is kept in any case, since its gradient needs it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from svtoolkit.reversible.batch_norms import known_batch_norm, normalised
from svtoolkit.reversible.recomputation import AutocastState

POINTWISE = frozenset(
    {
        F.relu, torch.relu, F.relu6, F.hardtanh, F.leaky_relu, F.elu, F.silu, F.gelu, F.softplus,
        torch.sigmoid, torch.tanh, Tensor.relu, Tensor.sigmoid, Tensor.tanh,
    }
)  # fmt: skip
"""Functions of one tensor that cost no more than to read and write it."""
CONVOLUTIONS = frozenset({torch.conv1d, torch.conv2d})


class Kept(NamedTuple):
    """A tensor that is there when backward asks for it."""

    tensor: Tensor
    version: int

    def value(self) -> Tensor:
        """The tensor.

        Raises:
            RuntimeError: it was modified since.
        """
        if self.tensor._version != self.version:
            raise RuntimeError(
                f"an activation of shape {tuple(self.tensor.shape)} was modified in place before its gradient was "
                "computed; modify a clone of it"
            )
        return self.tensor


class Recipe:
    """How a tensor is made of others.

    Attributes:
        is_asked_for: whether autograd keeps it: what was computed once is then there for whoever asks next, until
            autograd lets the recipe go.
    """

    def __init__(self, make: Callable[[], Tensor], autocast: AutocastState) -> None:
        self._make, self.autocast = make, autocast
        self._made: Tensor | None = None
        self.is_asked_for = False

    def value(self) -> Tensor:
        """The tensor, computed again."""
        if self._made is not None:
            return self._made
        with torch.no_grad(), self.autocast.restored():
            made = self._make()
        if self.is_asked_for:
            self._made = made
        return made


class Slot:
    """What autograd keeps in the place of a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        # Not the tensor itself, which may be the result whose history keeps this slot: that would be a circle.
        self.content: Kept | Recipe = Kept(tensor.detach(), tensor._version)

    def fill(self, recipe: Recipe) -> None:
        """Keep the recipe instead."""
        recipe.is_asked_for = True
        self.content = recipe

    def value(self) -> Tensor:
        """The tensor."""
        return self.content.value()


class _Known(NamedTuple):
    storage: weakref.ref[torch.UntypedStorage]
    version: int
    recipe: Recipe

    def is_of(self, tensor: Tensor) -> bool:
        """Whether a tensor is on the storage, and that is as it was."""
        return self.storage() is tensor.untyped_storage() and self.version == tensor._version


_GIVEN: ContextVar[tuple[_Known, ...]] = ContextVar("given", default=())


@contextmanager
def made_again(x: Tensor, recipe: Recipe) -> Iterator[None]:
    """Context in which autograd keeps a recipe where it would keep ``x`` or a view of it."""
    token = _GIVEN.set((*_GIVEN.get(), _Known(weakref.ref(x.untyped_storage()), x._version, recipe)))
    try:
        with torch.autograd.graph.saved_tensors_hooks(_pack_given, Slot.value):
            yield
    finally:
        _GIVEN.reset(token)


def _pack_given(tensor: Tensor) -> Slot:
    slot = Slot(tensor)
    if recipe := given_recipe(tensor):
        slot.fill(recipe)
    return slot


def given_recipe(tensor: Tensor) -> Recipe | None:
    """Of a tensor that ``made_again`` was told of; views are those of one tensor that is made once."""
    recipe = next((known.recipe for known in _GIVEN.get() if known.is_of(tensor)), None)
    if recipe is None:
        return None
    recipe.is_asked_for = True
    size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
    return Recipe(lambda: recipe.value().as_strided(size, stride, offset), recipe.autocast)


class Recipes(TorchFunctionMode):
    """Remembers what can be computed again while it is entered; ``pack`` and ``unpack`` are autograd's hooks.

    Args:
        expansions: whether the result of a 1x1 convolution with more channels than its input is computed again, too.
    """

    def __init__(self, *, expansions: bool) -> None:
        super().__init__()
        self.expansions = expansions
        self._known: dict[Any, _Known] = {}
        self._slots: list[Slot] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        make = self._again(func, args, given)
        if make is None or not torch.is_grad_enabled():
            return func(*args, **given)
        x = args[0]
        source: Kept | Recipe | None = self._find(x)
        self._slots = []
        result = func(*args, **given)
        if source is None and func not in POINTWISE:  # what a norm or a convolution reads is kept for its gradient
            source = Kept(x.detach(), x._version)
        if source is not None and isinstance(result, Tensor):
            recipe = Recipe(partial(_made_of, make, source), AutocastState.capture(result.device))
            self._known[_key(result)] = _Known(weakref.ref(result.untyped_storage()), result._version, recipe)
            for slot in self._slots:  # ReLU and others keep their own result
                if isinstance(slot.content, Kept) and _key(slot.content.tensor) == _key(result):
                    slot.fill(recipe)
        return result

    def _again(
        self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
    ) -> Callable[[Tensor], Tensor] | None:
        """What computes the same again, without moving running statistics; None: not worth while, or not known."""
        if not args or not isinstance(args[0], Tensor):
            return None
        others = args[1:]
        if func is F.batch_norm:
            return _norm(*others, **given)
        if func is known_batch_norm:
            return lambda x: normalised(x, *others)
        if func in POINTWISE or (self.expansions and func in CONVOLUTIONS and _expands(*args, **given)):
            rest = {**given, "inplace": False} if given.get("inplace") else given
            return lambda x: func(x, *others, **rest)
        return None

    def _find(self, tensor: Tensor) -> Recipe | None:
        known = self._known.get(_key(tensor))
        return known.recipe if known is not None and known.is_of(tensor) else given_recipe(tensor)

    def pack(self, tensor: Tensor) -> Slot:
        """What autograd keeps in the place of a tensor."""
        slot = Slot(tensor)
        if recipe := self._find(tensor):
            slot.fill(recipe)
        self._slots.append(slot)
        return slot

    def forget(self) -> None:
        """Let go of all that autograd does not keep."""
        self._known.clear()
        self._slots.clear()


def _made_of(make: Callable[[Tensor], Tensor], source: Kept | Recipe) -> Tensor:
    return make(source.value())


def _norm(
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Callable[[Tensor], Tensor]:
    if training:
        mean = variance = None
    return lambda x: F.batch_norm(x, mean, variance, weight, bias, training, 0.0, eps)


def _expands(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> bool:  # fmt: skip
    """Whether a convolution is 1x1 and makes more channels than it reads, which are kept for its own gradient."""
    return (
        weight.requires_grad
        and all(size == 1 for size in weight.shape[2:])
        and all(step == 1 for step in (stride if isinstance(stride, tuple) else (stride,)))
        and groups == 1
        and weight.shape[0] > weight.shape[1]
    )


def _key(tensor: Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return id(storage), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


@contextmanager
def recomputed_norms(*, expansions: bool = False) -> Iterator[Recipes | None]:
    """Context for the forward pass of a network, whose backward pass then computes norms and what follows again."""
    if not torch.is_grad_enabled():
        yield None
        return
    recipes = Recipes(expansions=expansions)
    try:
        with torch.autograd.graph.saved_tensors_hooks(recipes.pack, Slot.value), recipes:
            yield recipes
    finally:
        recipes.forget()
