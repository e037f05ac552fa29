"""What a plan costs: memory and time of every block under every way, and of the network around them.

Sizes are bytes and times seconds, of one batch. A chain of blocks is run by a plan of ``svtoolkit.reversible.plans``:
forward goes through its parts and keeps what each says, backward goes through them in reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from svtoolkit.reversible.plans import FROM_INPUT, Leaf, Part, Plan, Segment, Way
from svtoolkit.reversible.stash import Stash

Around: TypeAlias = Literal["norm", "expand"]


@dataclass(frozen=True)
class Option:
    """One block, treated in one way.

    Attributes:
        way: of its leaf.
        seconds: of its evaluation and its gradient.
        kept: bytes from its evaluation to its gradient, but for its input and result.
        forward: highest bytes during its evaluation beyond its input and what was kept before, with its result.
        backward: highest bytes during its gradient beyond the same, with the gradients of its result and its input.
        holds_input: whether its input is kept as it is; inside a segment that of what is stored always is.
        holds_result: whether its result is kept for its own gradient.
        recomputed: whether it is evaluated again: a segment of one leaf, or a way that keeps the input alone.
        stash: of this segment.
        seconds_again: as ``seconds``, inside a segment, where its norms are known; None: as many.
        seconds_at_end: the same at the end of a segment, where nobody reads its result; None: as many.
        forward_at_end: as ``forward``, there.
        gradient_seconds: of its gradient alone, beside which another input may come back from the host.
        travel: seconds in which its input comes back from the host, beside the gradient of the part after it where that
            is recomputed in the same step of autograd; 0: it is not there. Of parts of the top alone.
    """

    way: Way
    seconds: float
    kept: int
    forward: int
    backward: int
    holds_input: bool = True
    holds_result: bool = False
    recomputed: bool = False
    stash: Stash | None = None
    seconds_again: float | None = None
    seconds_at_end: float | None = None
    forward_at_end: int | None = None
    gradient_seconds: float = 0.0
    travel: float = 0.0

    def part(self, position: int) -> Part:
        """Of the plan of a chain where the block has this position."""
        leaf = Leaf(position, self.way)
        is_segment = self.recomputed and (self.way not in FROM_INPUT or self.stash is not None)
        return Segment((leaf,), self.stash) if is_segment else leaf

    @property
    def again(self) -> float:
        """Seconds inside a segment."""
        return self.seconds if self.seconds_again is None else self.seconds_again

    @property
    def at_end(self) -> tuple[float, int]:
        """Seconds and highest bytes of the evaluation at the end of a segment."""
        return (
            self.again if self.seconds_at_end is None else self.seconds_at_end,
            self.forward if self.forward_at_end is None else self.forward_at_end,
        )


@dataclass(frozen=True)
class Block:
    """One module of a chain.

    Attributes:
        options: ways to treat it, the first of which is to store.
        result: bytes of what it makes; 0 where that is another view of what comes in.
        seconds: of its first evaluation, which records nothing.
        saved: seconds that others take less, whose norms are known.
        forward: highest bytes of it beyond the input, with its result.
        weight_gradients: bytes.
        gradient: bytes of that of its result; None: as many as of the result.
        copying: seconds to copy the gradient of its result, with which a step of recomputation begins that ends here.
    """

    options: tuple[Option, ...]
    result: int
    seconds: float
    forward: int
    weight_gradients: int = 0
    gradient: int | None = None
    copying: float = 0.0
    saved: float = 0.0


@dataclass(frozen=True)
class Run:
    """Blocks that are run one after the other by one plan, and where in the step they are.

    Attributes:
        input: bytes of what comes in, which is held from forward to backward.
        before_forward: bytes that are there when the first block begins, but for what blocks of this run or of others
            keep; with the input.
        before_backward: the same when the gradient of the last block begins, without the gradient of its result.
        between_forward: highest bytes of what the network does between this run and the next, or its loss.
        between_backward: the same on the way back.
        result_is_held: whether the network keeps what the last block makes.
        joins: whether segments may be of several blocks.
        input_is_made_again: whether what comes in is not held, but made again when the gradient of the first part of a
            plan begins.
    """

    blocks: tuple[Block, ...]
    input: int
    before_forward: int = 0
    before_backward: int = 0
    between_forward: int = 0
    between_backward: int = 0
    result_is_held: bool = False
    joins: bool = True
    input_is_made_again: bool = False

    @property
    def made_again(self) -> int:
        """Bytes that the gradient of the first part of a plan begins with beside what is kept."""
        return self.input if self.input_is_made_again else 0

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of what comes into every block, and of what the last one makes."""
        return (self.input, *(block.result for block in self.blocks))

    @cached_property
    def upstream(self) -> tuple[int, ...]:
        """Bytes of the gradient of what the block before each one makes, and of what the last one makes."""
        return (0, *(block.result if block.gradient is None else block.gradient for block in self.blocks))

    @cached_property
    def weight_gradients(self) -> tuple[int, ...]:
        """Bytes of those of the blocks from each on, and 0 after the last."""
        found = [0]
        for block in reversed(self.blocks):
            found.append(found[-1] + block.weight_gradients)
        return tuple(reversed(found))


@dataclass(frozen=True)
class Costs:
    """Of a network.

    Attributes:
        runs: in the order of forward.
        seconds: of all that no plan decides.
        elsewhere: bytes below which no plan brings the peak.
        wholes: of steps in which all blocks are stored and ``around`` is the same everywhere in the network; they are
            measured when they are first asked for.
        least_of_wholes: bytes that the peak of none of these is below.
    """

    runs: tuple[Run, ...]
    seconds: float = 0.0
    elsewhere: int = 0
    wholes: Callable[[], tuple[Outlay, ...]] = field(default=tuple, compare=False)
    least_of_wholes: int = 0


@dataclass(frozen=True)
class Outlay:
    """Peak and time of a step under plans, one for each run.

    Attributes:
        around: what is done to all that the network computes, outside of blocks, too: norms are made again, or these
            and expansions, as under memory=recompute_norm; None: nothing.
    """

    plans: tuple[Plan, ...]
    peak: int
    seconds: float
    around: Around | None = None


def outlay_of(costs: Costs, plans: tuple[Plan, ...]) -> Outlay:
    """Peak and time of a step, to the byte."""
    peak, seconds, kept = costs.elsewhere, costs.seconds, 0
    after = [0]
    for run in reversed(costs.runs):
        after.append(after[-1] + run.weight_gradients[0])
    for run, plan, gradients in zip(costs.runs, plans, after[-2::-1], strict=True):
        forward, backward = run.before_forward + kept, run.before_backward + kept + gradients
        walk = _Walk(run, forward, backward)
        took, kept_here = walk.record(plan, is_top=True)
        peak, seconds, kept = max(peak, walk.peak), seconds + took, kept + kept_here
        peak = max(peak, run.between_forward + kept, run.between_backward + kept + gradients)
    return Outlay(plans, peak, seconds)


def stored_plans(costs: Costs) -> Outlay:
    """Of stored activations."""
    return outlay_of(costs, plans_that_store([len(run.blocks) for run in costs.runs]))


def plans_that_store(counts: Iterable[int]) -> tuple[Plan, ...]:
    """Of runs of so many blocks."""
    return tuple(tuple(Leaf(position) for position in range(count)) for count in counts)


@dataclass
class _Walk:
    """A plan from its first part to its last.

    Attributes:
        forward, backward: bytes that are there besides when an evaluation, or a gradient, begins.
        peak: so far.
    """

    run: Run
    forward: int
    backward: int
    peak: int = 0

    def record(self, parts: tuple[Part, ...], *, is_top: bool) -> tuple[float, int]:
        """Seconds of evaluation and gradient of the parts, and what is kept after the evaluation."""
        seconds, kept, is_held = 0.0, 0, True
        fetched, travel = 0, 0.0
        last = bounds(parts[-1])[1]
        steps = self._steps(parts, last) if is_top else [(last, 0)] * len(parts)
        for part, (step_end, gradient) in zip(parts, steps, strict=True):
            begin, end = bounds(part)
            at_end = end == last and not is_top
            option = self._option(part)
            size = self.run.sizes[begin]
            entered = kept + (0 if is_held else size)
            again = self.run.made_again if is_top and begin == 0 else 0
            backward = self.backward + gradient + self.run.weight_gradients[end] + again + fetched
            is_inside_piece = option is not None and not option.recomputed and not is_top
            if not is_held and (option is None or option.holds_input or is_inside_piece):
                kept += size
            if option:
                took, forward = option.seconds if is_top else option.again, option.forward
                if at_end:
                    took, forward = option.at_end
                took += max(0.0, travel - option.gradient_seconds)
                seconds += took
                self.peak = max(self.peak, self.forward + entered + forward, backward + kept + option.backward)
                kept += option.kept
            else:
                assert isinstance(part, Segment)
                if not at_end:
                    blocks = self.run.blocks[begin:end]
                    seconds += sum(inner.seconds - (0.0 if is_top else inner.saved) for inner in blocks)
                    self.peak = max(self.peak, self.forward + entered + unrecorded(self.run, begin, end))
                evaluated = backward + kept + self.run.upstream[end]
                inside = _Walk(self.run, evaluated, backward + kept - self.run.weight_gradients[end])
                seconds += max(inside.record(part.parts, is_top=False)[0], travel)
                self.peak = max(self.peak, inside.peak)
            if gradient and end == step_end:
                seconds += self.run.blocks[end - 1].copying
            is_held = option is not None and option.holds_result
            is_of_network = end == last and is_top and self.run.result_is_held
            kept += self.run.sizes[end] if is_held and not is_of_network else 0
            fetched, travel = 0, 0.0 if option is None else option.travel
            if travel and end == step_end:
                seconds, travel = seconds + travel, 0.0
            elif travel:
                fetched = size
        return seconds, kept

    def _steps(self, parts: tuple[Part, ...], last: int) -> list[tuple[int, int]]:
        """Of every part at the top, where its step of autograd ends, and bytes of the gradient held during that step.

        What is stored autograd runs itself, and holds none; to a step of recomputation, which neighbours share, it
        gives a copy of the gradient of the last result. Inside a segment nobody holds one that was used.
        """
        found: list[tuple[int, int]] = []
        step_end, was_stored = last, None
        for part in reversed(parts):
            option = self._option(part)
            is_stored = option is not None and not option.recomputed
            if is_stored != was_stored or not self.run.joins:
                step_end = bounds(part)[1]
            was_stored = is_stored
            found.append((step_end, 0 if is_stored else self.run.upstream[step_end]))
        return found[::-1]

    def _option(self, part: Part) -> Option | None:
        """The way of a part that is one block; None: a segment of several."""
        begin, end = bounds(part)
        if end - begin > 1:
            return None
        return next(option for option in self.run.blocks[begin].options if option.part(begin) == part)


def bounds(part: Part) -> tuple[int, int]:
    """First position of a part, and the one after its last."""
    if isinstance(part, Leaf):
        return part.position, part.position + 1
    return bounds(part.parts[0])[0], bounds(part.parts[-1])[1]


def unrecorded(run: Run, begin: int, end: int) -> int:
    """Highest bytes of an evaluation of blocks that records nothing, beyond what comes into the first."""
    highest = run.blocks[begin].forward
    for position in range(begin + 1, end):
        highest = max(highest, run.sizes[position] + run.blocks[position].forward)
    return highest
