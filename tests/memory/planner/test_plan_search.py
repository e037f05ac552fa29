"""The fastest plan under a peak: against all plans of small chains, played moment by moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.memory.host_stash import HostMemory
from svtoolkit.memory.planner import choice
from svtoolkit.memory.planner.choice import fastest, leanest
from svtoolkit.memory.planner.costs import Block, Costs, Option, Outlay, Run, bounds, outlay_of, stored_plans
from svtoolkit.memory.planner.search import PlanTable
from svtoolkit.reversible import EightBits
from svtoolkit.reversible.plans import Leaf, Part, Plan, Segment

STASH, HOST = EightBits(), HostMemory()
SMALL = st.integers(0, 9)


@st.composite
def options(draw, result, way="store", *, recomputed=False, stash=None, extra=0, travels=False):
    """What is possible: a gradient begins with what is kept for it, and with that of the result."""
    kept, seconds = draw(SMALL), draw(st.integers(1, 5)) + extra
    forward, holds_result = draw(st.integers(1, 9)), draw(st.booleans())
    return Option(
        way,
        seconds,
        kept,
        forward,
        kept + holds_result * result + draw(SMALL),
        holds_input=draw(st.booleans()) if not recomputed else stash is None,
        holds_result=holds_result and not travels,
        recomputed=recomputed,
        stash=stash,
        seconds_again=draw(st.integers(0, seconds)),
        seconds_at_end=seconds - draw(st.integers(0, extra)) if recomputed else None,
        forward_at_end=draw(st.integers(0, forward)) if recomputed else None,
        gradient_seconds=draw(st.integers(0, seconds)),
        travel=draw(st.integers(1, 6)) if travels else 0.0,
    )


@st.composite
def blocks(draw):
    result = draw(st.integers(1, 9))
    ways = [draw(options(result))]
    if draw(st.booleans()):
        ways.append(draw(options(result, "norm")))
    if draw(st.booleans()):
        ways.append(draw(options(result, recomputed=True, extra=2)))
    if draw(st.booleans()):
        ways.append(draw(options(result, recomputed=True, stash=STASH, extra=3)))
    if draw(st.booleans()):
        ways.append(draw(options(result, recomputed=True, stash=HOST, extra=3, travels=True)))
    size = draw(st.sampled_from((result, result, 0)))
    seconds, forward = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    copying, saved = draw(st.integers(0, 3)), draw(st.integers(0, seconds))
    return Block(tuple(ways), size, seconds, forward, draw(SMALL), result, copying, saved)


@st.composite
def runs(draw, most):
    return Run(
        tuple(draw(st.lists(blocks(), min_size=1, max_size=most))),
        *(draw(SMALL) for _ in range(5)),
        *(draw(st.booleans()) for _ in range(3)),
    )


def all_parts(run: Run, begin: int, end: int, *, is_whole: bool, at_top: bool = False) -> Iterator[tuple[Part, ...]]:
    """Every plan of blocks begin to end; a segment that is all of a segment is none of its own."""
    if begin == end:
        yield ()
        return
    for rest in all_parts(run, begin + 1, end, is_whole=False, at_top=at_top):
        for option in run.blocks[begin].options:
            if option.travel and not at_top:
                continue
            leaf = Leaf(begin, option.way)
            yield (Segment((leaf,), option.stash) if option.recomputed else leaf, *rest)
    for middle in range(begin + 2, end + (not is_whole)):
        if run.joins:
            for inner in all_parts(run, begin, middle, is_whole=True):
                for rest in all_parts(run, middle, end, is_whole=False, at_top=at_top):
                    yield (Segment(inner), *rest)


class Player:
    """A step under plans, moment by moment: what is there has a name, and is counted once."""

    def __init__(self, costs: Costs) -> None:
        self.there: dict[object, int] = {}
        self.highest, self.seconds = costs.elsewhere, costs.seconds

    def moment(self, extra: int) -> None:
        self.highest = max(self.highest, sum(self.there.values()) + extra)

    def play(self, costs: Costs, plans: tuple[Plan, ...]) -> tuple[int, float]:
        backwards = []
        for number, (run, plan) in enumerate(zip(costs.runs, plans, strict=True)):
            self.there["around"] = run.before_forward
            backwards.append((run, self.record(run, number, plan, at_top=True)))
            del self.there["around"]
            self.moment(run.between_forward)
        for run, undo in reversed(backwards):
            self.moment(run.between_backward)
            self.there["around"] = run.before_backward
            undo()
            del self.there["around"]
        return self.highest, self.seconds

    def record(self, run, number, parts, *, at_top, level=0):
        """Evaluates parts; returns what computes their gradients."""
        undoing = []
        places = [bounds(part) for part in parts]
        stored = [isinstance(part, Leaf) for part in parts]
        for place, (part, (begin, end)) in enumerate(zip(parts, places, strict=True)):
            at_end = place + 1 == len(parts) and not at_top
            name_in, name_out = (number, level, begin), (number, level, end)
            was_held = place == 0 or name_in in self.there
            entered = 0 if was_held else run.sizes[begin]
            single = None
            if end - begin == 1:
                single = next(o for o in run.blocks[begin].options if matches(o, part))
                seconds, forward = single.seconds if at_top else single.seconds_again, single.forward
                if at_end and single.seconds_at_end is not None:
                    seconds, forward = single.seconds_at_end, single.forward_at_end
                self.seconds += seconds
                self.moment(entered + forward)
            elif not at_end:
                self.seconds += sum(b.seconds - (0 if at_top else b.saved) for b in run.blocks[begin:end])
                for position in range(begin, end):
                    there = entered + (run.sizes[position] if position > begin else 0)
                    self.moment(there + run.blocks[position].forward)
            if not was_held and (single is None or single.holds_input or (stored[place] and not at_top)):
                self.there[name_in] = run.sizes[begin]
            if single:
                self.there[number, level, begin, "kept"] = single.kept
                is_of_network = at_top and place + 1 == len(parts) and run.result_is_held
                if single.holds_result and not is_of_network:
                    self.there[name_out] = run.sizes[end]
            undoing.append((part, single, begin, end, name_out))

        def step_end(place):
            """Where the step of autograd ends that a part is in: of neighbours that are recomputed."""
            while run.joins and place + 1 < len(parts) and not stored[place + 1]:
                place += 1
            return places[place][1]

        def undo():
            for place in reversed(range(len(parts))):
                part, single, begin, end, name_out = undoing[place]
                self.there.pop(name_out, None)
                ends = step_end(place)
                if at_top and not stored[place]:
                    self.there["step", level] = run.upstream[ends]
                    self.seconds += run.blocks[end - 1].copying if end == ends else 0
                if at_top and place == 0:
                    self.there["made again"] = run.input if run.input_is_made_again else 0
                travel = 0.0
                if place and undoing[place - 1][1] and undoing[place - 1][1].travel:  # the one before is on its way
                    travel = undoing[place - 1][1].travel
                    if step_end(place - 1) == ends:
                        self.there["on its way"] = run.sizes[begin - 1]
                    else:
                        self.seconds, travel = self.seconds + travel, 0.0
                if single:
                    self.seconds += max(0.0, travel - single.gradient_seconds)
                    self.seconds += single.travel if place + 1 == len(parts) else 0.0
                began = self.seconds
                if single:
                    del self.there[number, level, begin, "kept"]
                    self.moment(single.backward)
                    self.there[number, "weights", begin] = run.blocks[begin].weight_gradients
                else:
                    self.there["gradient"] = run.upstream[end]
                    undo_inside = self.record(run, number, part.parts, at_top=False, level=level + 1)
                    del self.there["gradient"]
                    undo_inside()
                    self.seconds += max(0.0, travel - (self.seconds - began))
                self.there.pop(("step", level), None)
                if at_top:
                    self.there.pop("on its way", None)
                    self.there.pop("made again", None)

        return undo


def flat(part):
    return [part] if isinstance(part, Leaf) else [leaf for inner in part.parts for leaf in flat(inner)]


def matches(option, part):
    is_segment = isinstance(part, Segment)
    leaf = part.parts[0] if is_segment else part
    stash = part.stash if is_segment else None
    return (option.way, option.recomputed, option.stash) == (leaf.way, is_segment, stash)


def all_plans(costs: Costs) -> list[tuple[Plan, ...]]:
    found: list[tuple[Plan, ...]] = [()]
    for run in costs.runs:
        own = list(all_parts(run, 0, len(run.blocks), is_whole=False, at_top=True))
        found = [(*before, plan) for before in found for plan in own]
    return found


def least_times(costs: Costs, most: int) -> np.ndarray:
    """By every plan there is."""
    found = np.full(most + 1, np.inf)
    for plans in all_plans(costs):
        peak, seconds = Player(costs).play(costs, plans)
        found[peak:] = np.minimum(found[peak:], seconds)
    return found


@settings(max_examples=20, deadline=None)
@given(st.builds(Costs, st.tuples(runs(4)) | st.tuples(runs(2), runs(2)), SMALL, SMALL))
def test_no_plan_is_faster_in_as_much_memory(costs):
    most = 150
    table = PlanTable(costs, most, most)
    assert table.slot == 1
    assert np.array_equal(table.times, least_times(costs, most))
    for peak in np.unique(table.times, return_index=True)[1]:
        if np.isfinite(table.times[peak]):
            plans = table.plans(int(peak))
            found = outlay_of(costs, plans)
            assert (found.peak, found.seconds) == Player(costs).play(costs, plans)
            assert found.peak <= peak
            assert found.seconds == table.times[peak]


def plain(seconds: int, forward: int, backward: int, *, recomputed: bool) -> Option:
    return Option("store", seconds, 0, forward, backward, recomputed=recomputed)


def two_ways(result: int, stored: tuple[int, int, int], recomputed: tuple[int, int, int]) -> Block:
    """Seconds and bytes of a block that keeps nothing but its input, either way."""
    return Block((plain(*stored, recomputed=False), plain(*recomputed, recomputed=True)), result, 1, 1)


def test_two_steps_of_recomputation_do_not_follow_each_other_where_they_would_be_one():
    """As one step, autograd would hold the gradient of the result of the second during all of the first."""
    chain = two_ways(4, (2, 1, 0), (2, 4, 3)), two_ways(1, (3, 4, 1), (4, 2, 1)), two_ways(2, (4, 1, 4), (3, 3, 5))
    table = PlanTable(Costs((Run(chain, 0),)), 40, 40)
    for peak in range(8, 40):
        found = outlay_of(Costs((Run(chain, 0),)), table.plans(peak))
        assert (found.peak <= peak, found.seconds) == (True, table.times[peak])


@settings(max_examples=20, deadline=None)
@given(st.builds(Costs, st.tuples(runs(3)), SMALL, SMALL), st.integers(1, 150), st.integers(1, 40))
def test_what_is_done_everywhere_is_chosen_where_it_is_best(costs, peak, seconds):
    whole = Outlay(stored_plans(costs).plans, peak, seconds, "norm")
    both = replace(costs, wholes=lambda: (whole,))
    in_as_much, in_as_long = fastest(both, peak), leanest(both, max(seconds, stored_plans(costs).seconds))
    others = fastest(costs, peak)
    assert in_as_much == (whole if others is None or (seconds, peak) < (others.seconds, others.peak) else others)
    assert in_as_long.peak <= peak
    assert fastest(both, peak - 1) == fastest(costs, peak - 1)


@settings(max_examples=20, deadline=None)
@given(st.builds(Costs, st.tuples(runs(5))), st.integers(5, 30))
def test_rounding_never_lets_a_plan_exceed_what_it_was_made_for(costs, slots):
    table = PlanTable(costs, 150, slots)
    for count in range(slots + 1):
        if np.isfinite(table.times[count]):
            assert outlay_of(costs, table.plans(count)).peak <= count * table.slot


@settings(max_examples=8, deadline=None)
@given(st.builds(Costs, st.tuples(runs(3)), SMALL, st.just(0)), st.floats(0, 1), st.floats(0, 1))
def test_more_time_never_takes_more_memory(costs, some, more):
    most = stored_plans(costs)
    limits = [most.seconds * (1 + 3 * extra) for extra in sorted((some, more))] + [np.inf]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_slots", lambda costs: 20)
        found = [leanest(costs, seconds) for seconds in limits]
        assert most.peak >= found[0].peak >= found[1].peak >= found[2].peak
        assert all(outlay.seconds <= seconds for outlay, seconds in zip(found, limits, strict=True))
        assert fastest(costs, found[2].peak) is not None
        choice._KNOWN.clear()  # an answer does not depend on what was asked before
        assert [leanest(costs, seconds) for seconds in reversed(limits)] == found[::-1]
