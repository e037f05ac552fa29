"""Parts of a plan one after the other: what each of them keeps, and the gradients that follow from that.

Between two parts there is nothing but their tensors: each is differentiated by itself, from the last to the first, and
lets go of what it kept as soon as it has been used. So a segment need not make what only its successor would read of
it, and the last part of a segment that is evaluated again is differentiated from its input at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from svtoolkit.reversible.batch_norms import Norm, known_norms, recorded_norms
from svtoolkit.reversible.chunks import backward_in_chunks, can_chunk
from svtoolkit.reversible.coupling import Record, ReversibleSequence, refuse_in_place
from svtoolkit.reversible.manual_backward import GroupedBackward, Request, can_group, is_manual, recompute_backward
from svtoolkit.reversible.plans import (
    FROM_INPUT,
    Leaf,
    Part,
    Segment,
    cuts_of,
    is_stored,
    leaves,
    only_leaf,
    pieces_of,
    positions,
)
from svtoolkit.reversible.recipes import recomputed_norms
from svtoolkit.reversible.recomputation import ParameterGradients, RandomState
from svtoolkit.reversible.stash import Stash

Upstream: TypeAlias = "list[Tensor]"
"""The gradient of a value, taken out by whoever uses it: callers would hold it for as long as that runs. It may be
overwritten."""


class Run(NamedTuple):
    """Whose parts they are, and where gradients of parameters go; statistics are untracked in the second evaluation.

    Attributes:
        norms: by position, what the norms of modules found in their first evaluation; None: they are not understood.
        owned: what is kept will not be asked again, and may be used up.
        keeps_norms: whether norms are noted of all modules, else of those alone that are differentiated in groups or
            chunks; a second evaluation is up to rounding then what the first was.
    """

    modules: list[nn.Module]
    gradients: ParameterGradients
    norms: dict[int, list[Norm] | None]
    owned: bool = True
    keeps_norms: bool = False

    def learns(self, *parts: Part) -> bool:
        """Whether parts have a parameter that needs a gradient."""
        return bool(self.parameters(*parts))

    def parameters(self, *parts: Part) -> list[nn.Parameter]:
        """Of parts, those that need a gradient, each once."""
        found = (weight for position in positions(*parts) for weight in self.modules[position].parameters())
        return list(dict.fromkeys(weight for weight in found if self.gradients.wants(weight)))


@dataclass
class Kept:
    """What is kept of a part, and what follows from it.

    Attributes:
        tensor: of which its activations are made again, what a stash made of it, or what gives it; None once it was
            used.
        needs_input: whether the gradient of its input is wanted.
    """

    tensor: Any
    needs_input: bool

    def take(self) -> Any:
        """The tensor, given away."""
        tensor, self.tensor = self.tensor, None
        return tensor

    def differentiate(self, run: Run, upstream: Upstream) -> Tensor | None:
        """Gradient of the input of the part; used once."""
        raise NotImplementedError

    def fetch(self) -> None:
        """The gradient of the part after it begins."""


@dataclass
class Input(Kept):
    """The input of a part, and the random state that its evaluation found; None: it draws nothing."""

    part: Part
    stash: Stash | None
    random: RandomState | None

    def differentiate(self, run: Run, upstream: Upstream) -> Tensor | None:
        with nullcontext() if self.random is None else self.random.restored():
            return _differentiate(run, self.part, self._input(), upstream, needs_input=self.needs_input)

    def fetch(self) -> None:
        """What waits elsewhere comes back."""
        if self.stash is not None and not isinstance(self.tensor, Tensor):
            self.stash.fetch(self.tensor)

    def _input(self) -> Tensor:
        kept = self.take()
        if isinstance(kept, Tensor):
            return kept
        return kept() if callable(kept) or self.stash is None else self.stash.unpack(kept)


@dataclass
class Result(Kept):
    """The result of a reversible sequence."""

    sequence: ReversibleSequence
    record: Record

    def differentiate(self, run: Run, upstream: Upstream) -> Tensor | None:
        held = [self.take(), upstream.pop()]
        return self.sequence.pull_back(held, self.record, run.gradients, owned=run.owned)


@dataclass
class Graph(Kept):
    """Leaves whose activations autograd keeps; the tensor is their input."""

    parameters: list[nn.Parameter]
    edge: GradientEdge | None
    """None: nothing that they make depends on their input or a parameter."""
    gradient: Upstream
    """From where the engine takes the gradient, which is gone as soon as it has been used."""
    seed: Tensor
    """What the engine is given in its place."""

    def differentiate(self, run: Run, upstream: Upstream) -> Tensor | None:
        x = self.take()
        sources = [x, *self.parameters] if self.needs_input else [*self.parameters]
        if self.edge is None or not sources:
            return torch.zeros_like(x) if self.needs_input else None
        self.gradient.append(upstream.pop().to(self.seed.dtype))
        found = list(torch.autograd.grad([self.edge], sources, [self.seed], allow_unused=True))
        self.edge = None
        dx = found.pop(0) if self.needs_input else None
        for parameter, gradient in zip(self.parameters, found, strict=True):
            run.gradients.add(parameter, gradient)
        return torch.zeros_like(x) if self.needs_input and dx is None else dx


class _End(torch.autograd.Function):
    """The end of a graph, whose gradient is not handed over by the caller, who would hold it all the time."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradient: Upstream) -> Tensor:
        ctx.gradient = gradient
        return value.new_empty(()).expand(value.shape)

    @staticmethod
    def backward(ctx: Any, *seed: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient.pop(), None


def record(
    run: Run, parts: tuple[Part, ...], x: Tensor, *, needs_input: bool, whole: bool
) -> tuple[list[Kept], Tensor]:
    """Evaluate parts.

    Args:
        x: their input.
        needs_input: whether its gradient is wanted.
        whole: also what the last part makes, where that is not needed for its gradient.

    Returns:
        what is kept of each, from the first on through which there is a gradient, and the last value that was made.
    """
    kept: list[Kept] = []
    value = x
    del x
    pieces = pieces_of(parts)
    for number, piece in enumerate(pieces):
        if not needs_input and not run.learns(*piece):
            with torch.no_grad():
                value = evaluate(run, piece, value)
            continue
        if is_stored(piece[0]):
            step, value = _graph(run, piece, value, needs_input=needs_input)
            kept.append(step)
        else:
            with torch.no_grad():
                before = kept[-1].tensor if kept and isinstance(kept[-1], Result) else None
                is_needed = whole or number < len(pieces) - 1
                step, value = _kept(run, piece[0], value, before, needs_input=needs_input, is_needed=is_needed)
                del before
            kept.append(step)
        needs_input = True
    return kept, value


def unwind(run: Run, kept: list[Kept], upstream: Upstream) -> Tensor | None:
    """Gradient of the input of parts that were recorded, from the last to the first; uses up ``kept``."""
    while len(kept) > 1:
        kept[-2].fetch()
        dx = kept.pop().differentiate(run, upstream)
        assert dx is not None, "it learns, or something before it"
        upstream.append(dx)
        del dx
    return kept.pop().differentiate(run, upstream) if kept else None


def run_leaves(
    modules: list[nn.Module],
    leaves: tuple[Leaf, ...],
    x: Tensor,
    norms: Mapping[int, Sequence[Norm] | None] | None = None,
) -> Tensor:
    """Leaves one after the other, each in its way; what is made again is so across their borders.

    Args:
        norms: by position, what is known of an evaluation before.
    """
    for is_made_again, group in groupby(leaves, key=lambda leaf: leaf.way != "store"):
        with recomputed_norms() if is_made_again else nullcontext() as recipes:
            for leaf in group:
                if recipes is not None:
                    recipes.expansions = leaf.way == "expand"
                with known_norms(norms.get(leaf.position) if norms else None):
                    x = modules[leaf.position](x)
    return x


def evaluate(run: Run, parts: tuple[Part, ...], x: Tensor) -> Tensor:
    """What parts make, without gradient.

    Raises:
        RuntimeError: a module modified what it is recomputed from.
    """
    begin, cuts = x._version, {position for part in parts for position in cuts_of(part)}
    value = x
    for leaf in leaves(*parts):
        position = leaf.position
        before, version, module = value, value._version, run.modules[position]
        value = _evaluated(run, leaf, before)
        refuse_in_place(module, x, begin)
        if position in cuts:
            refuse_in_place(module, before, version)
        del before
    return value


def _evaluated(run: Run, leaf: Leaf, x: Tensor) -> Tensor:
    """What a module makes; the norms of its first evaluation are those of each."""
    module = run.modules[leaf.position]
    is_noted = run.keeps_norms or (leaf.way in FROM_INPUT and can_chunk(module))
    if leaf.position in run.norms or not is_noted:
        with known_norms(run.norms.get(leaf.position)):
            return module(x)
    with recorded_norms(x.device) as found:
        value = module(x)
    run.norms[leaf.position] = found.norms
    return value


def _graph(run: Run, leaves: tuple[Part, ...], x: Tensor, *, needs_input: bool) -> tuple[Kept, Tensor]:
    with torch.enable_grad():
        begin = x.detach().requires_grad_(needs_input)
        del x
        value = run_leaves(run.modules, tuple(leaf for leaf in leaves if isinstance(leaf, Leaf)), begin, run.norms)
        gradient: Upstream = []
        end = _End.apply(value, gradient)
        edge = get_gradient_edge(end) if value.requires_grad else None
    return Graph(begin, needs_input, run.parameters(*leaves), edge, gradient, end.detach()), value.detach()


def _kept(
    run: Run, part: Part, x: Tensor, result: Tensor | None, *, needs_input: bool, is_needed: bool
) -> tuple[Kept, Tensor]:
    """What is kept of a part that is recomputed, and its value; where that is not needed, some other tensor.

    Args:
        result: x, where it is kept already as a result.
    """
    sequence = _sequence(run.modules, part)
    if sequence is not None:
        value, made = sequence.run(x)
        return Result(value.detach(), needs_input, sequence, made), value
    random = RandomState(x.device)
    stash = part.stash if isinstance(part, Segment) and result is None else None
    kept = result if result is not None else x.detach() if stash is None else stash.pack(x.detach())
    value = evaluate(run, (part,), x) if is_needed else x
    if stash is not None:
        stash.settle(kept)
    return Input(kept, needs_input, part, stash, random if not is_needed or random.is_consumed() else None), value


def _sequence(modules: list[nn.Module], part: Part) -> ReversibleSequence | None:
    """The reversible sequence that a part consists of, where it can be inverted."""
    leaf = None if isinstance(part, Leaf) else only_leaf(part)
    module = None if leaf is None or leaf.way != "store" else modules[leaf.position]
    return module if isinstance(module, ReversibleSequence) and module.is_invertible() else None


def _differentiate(run: Run, part: Part, x: Tensor, upstream: Upstream, *, needs_input: bool) -> Tensor | None:
    """Gradient of a part at its input, under the random state of its first evaluation."""
    leaf = only_leaf(part)
    if leaf is not None:
        module = run.modules[leaf.position]
        norms = run.norms.get(leaf.position) if leaf.way in FROM_INPUT and can_chunk(module) else None
        if norms is not None and leaf.way in ("groups", "layers") and can_group(module):
            assert isinstance(module, GroupedBackward)
            keeps_layers = leaf.way == "layers"
            request = Request(run.gradients, needs_input=needs_input, norms=norms, keeps_layers=keeps_layers)
            with torch.no_grad():
                return module.backward_in_groups(x, upstream.pop(), request)
        if norms is not None and leaf.way == "chunks":
            is_done, dx = backward_in_chunks(module, x, upstream, run.gradients, norms, needs_input=needs_input)
            if is_done:
                return dx
        if leaf.way in ("store", *FROM_INPUT) and is_manual(module):
            return recompute_backward(module, x, upstream.pop(), run.gradients, needs_input=needs_input)
        part = Segment((Leaf(leaf.position, "store" if leaf.way in FROM_INPUT else leaf.way),))
    assert isinstance(part, Segment)
    kept, _ = record(run, part.parts, x, needs_input=needs_input, whole=False)
    del x, _
    return unwind(run, kept, upstream)
