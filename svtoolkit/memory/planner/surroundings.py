"""Where in a network its chains are run, and the memory of the step around them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.planner.block_costs import BlockCosts, Form, expands
from svtoolkit.memory.planner.clock import CONSUMER_GPU, Clock, Rates
from svtoolkit.memory.planner.costs import Around, Block, Costs, Outlay, Run, plans_that_store
from svtoolkit.memory.planner.stopwatch import copy_of
from svtoolkit.reversible import Chain, EightBits, ReversibleSequence, SharesValues, Sharing, share_values
from svtoolkit.reversible.plans import Plan, by_block
from svtoolkit.reversible.recipes import recomputed_norms


@dataclass(frozen=True)
class Crops:
    """What a network is trained on: so many crops at once, of so many frames and bins.

    Attributes:
        precision: type that autocast chooses; None: it is off.
    """

    batch: int
    frames: int
    num_bins: int
    precision: torch.dtype | None = None


@dataclass
class Place:
    """Where a plan is run: chains whose modules follow each other.

    Attributes:
        names: of the chains.
        forms: of what comes into each module, and of what the last one makes.
        joins: whether segments may be of several modules.
    """

    names: list[str] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    joins: bool = True


def chains_of(network: nn.Module) -> dict[str, Chain]:
    """Chains by name, but for those inside modules of others."""
    found: dict[str, Chain] = {}
    for name, module in network.named_modules():
        if isinstance(module, Chain) and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = module
    return found


def sharings_of(network: nn.Module, *, stashes: bool) -> list[Sharing | None]:
    """What may become of the values that several places of a network read; the first is to store them."""
    if not isinstance(network, SharesValues):
        return [None]
    return [None, Sharing(), *([Sharing(EightBits())] if stashes else [])]


def measure_network(
    network: nn.Module, crops: Crops, measure: BlockCosts | None = None, *, sharing: Sharing | None = None
) -> tuple[Costs, list[list[str]]]:
    """Costs of a step of a network in training, and the names of the chains of each run.

    Bytes are those beyond weights and buffers, before the head and without the optimizer. Nothing is computed, and the
    network is not touched.

    Args:
        measure: of the blocks; None: by the rates of ``CONSUMER_GPU``, with exact ways alone.
        sharing: what becomes of the values that several places read.
    """
    measure = measure or BlockCosts(CONSUMER_GPU, crops.precision)
    mode = QuickFakeTensorMode()
    with mode:
        double = _double(network).train()
        share_values(double, sharing)
        places = _places(double, crops)
        blocks = [
            tuple(measure.of(module, form) for module, form in zip(place.modules, place.forms, strict=False))
            for place in places
        ]
        costs = _Surroundings(double, places, crops, measure.rates).costs(blocks)
        costs = replace(costs, seconds=costs.seconds * measure.pace)
    if sharing is None:

        @cache
        def wholes() -> tuple[Outlay, ...]:
            counts = [len(of_run) for of_run in blocks]
            with mode:
                found = [_whole(double, counts, around, crops, measure.rates) for around in _arounds(double)]
            return tuple(replace(whole, seconds=whole.seconds * measure.pace) for whole in found)

        costs = replace(costs, wholes=wholes, least_of_wholes=_kept_by_all(blocks))
    return costs, [place.names for place in places]


def _kept_by_all(blocks: list[tuple[Block, ...]]) -> int:
    """Bytes that blocks keep at least beside their inputs, however they are stored."""
    return sum(
        min(option.kept + option.holds_result * block.result for option in block.options if not option.recomputed)
        for of_run in blocks
        for block in of_run
    )


def _arounds(network: nn.Module) -> tuple[Around, ...]:
    if any(isinstance(module, ReversibleSequence) for module in network.modules()):
        return ()
    return ("norm", "expand") if expands(network) else ("norm",)


def _whole(network: nn.Module, counts: list[int], around: Around, crops: Crops, rates: Rates) -> Outlay:
    """Of a step with something done around all of the forward pass."""
    ledger, clock = MemoryLedger(), Clock(rates)
    network.zero_grad()
    with ledger:
        frames = _empty(network, crops)
        ledger.count([*network.parameters(), *network.buffers()])
        before = sum(ledger.live().values()) - frames.untyped_storage().nbytes()
        with clock:
            with recomputed_norms(expansions=around == "expand"), _autocast(crops):
                loss = network(frames).sum()
            loss.backward()
    network.zero_grad()
    return Outlay(plans_that_store(counts), ledger.peak() - before, clock.seconds, around)


def _autocast(crops: Crops) -> AbstractContextManager[object]:
    return BlockCosts(CONSUMER_GPU, crops.precision).autocast()


def _double(network: nn.Module) -> nn.Module:
    """A copy with stored activations whose weights are fake; a strategy that it is under now is left out."""
    double = copy_of(network, lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    for module in double.modules():
        if isinstance(module, Chain):
            module.planner = None
    share_values(double, None)
    return double


def _empty(network: nn.Module, crops: Crops) -> Tensor:
    """Crops, of the type of the weights."""
    return torch.empty(crops.batch, crops.frames, crops.num_bins, dtype=next(network.parameters()).dtype)


def _places(network: nn.Module, crops: Crops) -> list[Place]:
    """Runs of chains, in the order of forward."""
    found: list[Place] = []
    chains = chains_of(network)
    handles = []

    def begin(count: int) -> Plan:
        found.append(Place())
        return by_block(count)

    def enter(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
            place = found[-1]
            if not place.names or place.names[-1] != name:
                place.names.append(name)
            place.modules.append(module)
            place.forms = [*place.forms[: len(place.modules) - 1], Form.of(inputs[0]), Form.of(output)]

        return note

    for name, chain in chains.items():
        chain.planner = begin
        chain.values = _noting(chain, found)  # type: ignore[method-assign,assignment]
        handles += [module.register_forward_hook(enter(name)) for module in chain.members()]
    with torch.no_grad(), _autocast(crops):
        network(_empty(network, crops))
    for handle in handles:
        handle.remove()
    for chain in chains.values():
        chain.planner = None
        del chain.values
    return [place for place in found if place.modules]


def _noting(chain: Chain, found: list[Place]) -> Callable[[Tensor], list[Tensor]]:
    def values(x: Tensor) -> list[Tensor]:
        before = len(found)
        results = Chain.values(chain, x)
        for place in found[before:]:
            place.joins = False
        return results

    return values


class _Surroundings:
    """A step of a network whose blocks are stood in for by what makes tensors of their forms and keeps nothing."""

    def __init__(self, network: nn.Module, places: list[Place], crops: Crops, rates: Rates) -> None:
        self.network, self.places, self.crops = network, places, crops
        self.ledger, self.clock = MemoryLedger(), Clock(rates)
        self.marks: dict[tuple[str, int], int] = {}
        self.results: dict[int, set[int]] = {}
        self.inputs: dict[int, set[int]] = {}
        self.held: dict[int, bool] = {}
        self.is_made_again: dict[int, bool] = {}

    def mark(self, event: str, number: int) -> None:
        self.marks[event, number] = len(self.ledger.changes)

    def costs(self, blocks: list[tuple[Block, ...]]) -> Costs:
        anchor = torch.empty(0, requires_grad=True)
        for number, place in enumerate(self.places):
            for position, module in enumerate(place.modules):
                module.forward = _StandIn(self, anchor, number, position)
        parameters = [*self.network.parameters(), *self.network.buffers()]
        with self.ledger:
            frames = _empty(self.network, self.crops)
            self.ledger.count(parameters)
            before = sum(self.ledger.live().values()) - frames.untyped_storage().nbytes()
            with self.clock:
                with _autocast(self.crops):
                    loss = self.network(frames).sum()
                loss.backward()
        for place in self.places:
            for module in place.modules:
                vars(module).pop("forward", None)
        totals = [total - before for total in accumulate(change.difference for change in self.ledger.changes)]
        return self._read(totals, blocks)

    def _read(self, totals: list[int], blocks: list[tuple[Block, ...]]) -> Costs:
        def highest(begin: tuple[str, int], end: tuple[str, int]) -> int:
            return max(totals[self.marks[begin] - 1 : self.marks[end]], default=0)

        runs = []
        last = len(self.places) - 1
        for number, place in enumerate(self.places):
            turn = ("backward", number) if number == last else ("forward", number + 1)
            runs.append(
                Run(
                    blocks[number],
                    place.forms[0].bytes,
                    before_forward=totals[self.marks["forward", number] - 1],
                    before_backward=totals[self.marks["backward", number] - 1] - place.forms[-1].bytes,
                    between_forward=highest(("forwarded", number), turn),
                    between_backward=0 if number == last else highest(("passed", number + 1), ("backward", number)),
                    result_is_held=self.held[number],
                    input_is_made_again=self.is_made_again[number],
                    joins=place.joins,
                )
            )
        gradients = sum(run.weight_gradients[0] for run in runs)
        begin = max(totals[: self.marks["forward", 0]])
        end = max(totals[self.marks["passed", 0] - 1 :]) + gradients
        return Costs(tuple(runs), self.clock.seconds, max(begin, end))


@dataclass
class _StandIn:
    """The forward pass of a block that makes a tensor of the right form."""

    around: _Surroundings
    anchor: Tensor
    number: int
    position: int

    def __call__(self, x: Tensor) -> Any:
        return _StoodIn.apply(x, self.anchor, self)

    @property
    def is_last(self) -> bool:
        return self.position + 1 == len(self.around.places[self.number].modules)


class _StoodIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, stands: _StandIn) -> Tensor:
        ctx.stands, around, number = stands, stands.around, stands.number
        if stands.position == 0:
            around.mark("forward", number)
            around.inputs[number] = around.ledger.count([x])
            ctx.save_for_backward(x)  # what comes into a run is kept, or made again
        form = around.places[number].forms[stands.position + 1]
        result = torch.empty(form.shape, dtype=form.dtype)
        if stands.is_last:
            around.results[number] = around.ledger.count([result])
            around.mark("forwarded", number)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        stands, around = ctx.stands, ctx.stands.around
        place = around.places[stands.number]
        if stands.is_last:
            around.mark("backward", stands.number)
            live = set(around.ledger.live())
            around.held[stands.number] = bool(around.results[stands.number] & live)
            around.is_made_again[stands.number] = not around.inputs[stands.number] <= live
        if stands.position == 0:
            ctx.saved_tensors  # noqa: B018
        form = place.forms[stands.position]
        gradient = torch.empty(form.shape, dtype=form.dtype)
        if stands.position == 0:
            around.mark("passed", stands.number)
        return (gradient if ctx.needs_input_grad[0] else None), None, None
