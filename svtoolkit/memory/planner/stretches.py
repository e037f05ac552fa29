"""The best plans of stretches of one run: inside segments, and at the top up to the end of the run."""

from __future__ import annotations

import numpy as np

from svtoolkit.memory.planner.costs import Run, unrecorded
from svtoolkit.memory.planner.slots import Best, Choices, SizedOption, Times, empty, improve, later

SEGMENT, PIECE, GROUP = 1000, 2000, 3000
"""A choice below is the number of an option. From here on: a segment of so many blocks more; so many blocks that are
stored together; so many that are recomputed in one step of autograd."""


class RunTable:
    """Of one run.

    Inside a segment, slots count what is beyond its input and all that was there before, but for the gradients of
    weights of this run. At the top they count everything but what earlier blocks keep.

    Args:
        slot: bytes.
        gradients: bytes of those of the weights of later runs.
        following: least times of these.
    """

    def __init__(self, run: Run, slot: int, gradients: int, following: Times) -> None:
        def up(size: int) -> int:
            return -(-size // slot)

        self.run, self.count, self.slots = run, len(run.blocks), len(following) - 1
        self.sizes = np.array([up(size) for size in run.sizes])
        self.upstream = [up(size) for size in run.upstream]
        self.gradients = [up(size) for size in run.weight_gradients]
        self.made_again = up(run.made_again)
        self.before_forward, self.before_backward = up(run.before_forward), up(run.before_backward + gradients)
        listed = [[SizedOption(n, o, slot) for n, o in enumerate(block.options)] for block in run.blocks]
        self.stored = [[option for option in options if not option.recomputed] for options in listed]
        self.recomputed = [[option for option in options if option.recomputed] for options in listed]
        self.travel = [max(option.travel for option in options) for options in listed]
        self.copying = [0.0, *(block.copying for block in run.blocks)]
        self.seconds = np.cumsum([0.0, *(block.seconds for block in run.blocks)])
        self.saved = np.cumsum([0.0, *(block.saved for block in run.blocks)])
        self.evaluated = [[0] * (self.count + 1) for _ in range(self.count)]
        for begin in range(self.count):
            for end in range(begin + 1, self.count + 1):
                self.evaluated[begin][end] = up(unrecorded(run, begin, end))
        self._cells = np.arange(self.slots + 1)
        self.inside: dict[tuple[int, int], Best] = {}
        self.again: dict[tuple[int, int], Best] = {}
        self.top: dict[int, Best] = {}
        self.top_stored: dict[int, Best] = {}
        self.groups: dict[int, Best] = {}
        self.ahead: dict[int, Best] = {}
        self._segments: dict[int, Times] = {}
        if run.joins and self.count > 1:
            self._alike = self._blocks_alike()
            known: dict[int, Times] = {}
            for end in range(1, self.count + 1):
                known = self._fill_inside(end, known)
        self._fill_top(max(up(run.between_forward), up(run.between_backward + gradients)), following)

    @property
    def times(self) -> Times:
        """Least times from this run on."""
        return self.top[0].times[1]

    def _blocks_alike(self) -> list[int]:
        """How many blocks up to each one are as those one position earlier, in all that a stretch follows from."""
        found = [0]
        for position in range(1, self.count):
            is_alike = self.run.blocks[position] == self.run.blocks[position - 1]
            is_alike = is_alike and self.gradients[position + 1] == self.gradients[position]
            found.append(found[-1] + 1 if is_alike else 0)
        return found

    def _fill_inside(self, end: int, known: dict[int, Times]) -> dict[int, Times]:
        """All stretches in a segment that ends there, from the shortest on; then segments that end there.

        Args:
            known: pieces of stretches that end one block earlier, by where they begin.

        Returns:
            the pieces of these.
        """
        pieces: Times = np.empty((0, self.slots + 1))
        found_pieces = {}
        rests = np.full((end + 1, self.slots + 1), np.inf)  # by where they begin, which nobody else holds
        for begin in reversed(range(end)):
            if end - begin <= self._alike[end - 1] and self.sizes[begin] == self.sizes[begin - 1]:
                self.again[begin, end] = self.again[begin - 1, end - 1]
                self.inside[begin, end] = best = self.inside[begin - 1, end - 1]
                rests[begin] = best.times[0]
                found_pieces[begin] = pieces = known[begin - 1]
                continue
            self.again[begin, end] = again = self._again(begin, end, rests)
            found_pieces[begin] = pieces = self._pieces(begin, end, pieces)
            number = pieces.argmin(axis=0)
            best = self._close(begin, pieces[number, self._cells], (number + PIECE + 1).astype(np.int16), [])
            for found, first, others, other_first in zip(*best, *again, strict=True):
                improve(found, first, others, other_first)
            self.inside[begin, end] = best
            rests[begin] = best.times[0]
        for begin in range(end - 1):
            seconds = float(self.seconds[end] - self.seconds[begin] - self.saved[end] + self.saved[begin])
            if end == begin + 2:
                self._segments[begin] = np.empty((self.count - begin - 1, self.slots + 1))
            self._segments[begin][end - begin - 2] = self.inside[begin, end].times[1] + seconds
        return found_pieces

    def _again(self, begin: int, end: int, rests: Times) -> Best:
        """Of plans that begin with what is recomputed."""
        middle, after = begin + 1, self._during_evaluation(end)
        rows = []
        for option in self.recomputed[begin]:
            if option.travel:
                continue
            if middle == end:
                rest, seconds, forward = np.zeros(self.slots + 1), option.seconds_at_end, option.forward_at_end
            else:
                rest, seconds = self.inside[middle, end].times[option.holds_result], option.again
                forward = option.forward
            least = option.backward + self.gradients[middle]
            rows.append((option, self._row(option, middle, rest, seconds, least), forward + after))
        return self._close(begin, *self._first_segment(begin, end - 1, 0, after, rests), rows)

    def _during_evaluation(self, end: int) -> int:
        """Slots of gradients that are there when a segment that ends there is evaluated."""
        return self.upstream[end] + self.gradients[end]

    def _first_segment(
        self,
        begin: int,
        last: int,
        before_backward: int,
        before_forward: int,
        rests: Times,
        travel: float = 0.0,
        *,
        at_top: bool = False,
    ) -> tuple[Times, Choices]:
        """Of plans that begin with a segment of two blocks or more up to ``last`` at most.

        Args:
            rests: what follows, by where it begins.
            travel: seconds that its gradient takes at least.
            at_top: its evaluation is the first, whose norms are not known yet.
        """
        if last < begin + 2 or before_backward > self.slots:
            return empty(self.slots + 1)
        count = last - begin - 1
        totals = np.full((count, self.slots + 1), np.inf)
        known = self._segments[begin][:count, : self.slots + 1 - before_backward]
        if at_top:
            known = known + (self.saved[begin + 2 : last + 1] - self.saved[begin])[:, None]
        if travel:
            evaluation = (self.seconds[begin + 2 : last + 1] - self.seconds[begin])[:, None]
            known = np.maximum(known, evaluation + travel)
        np.add(known, rests[begin + 2 : last + 1, before_backward:], out=totals[:, before_backward:])
        least = np.array(self.evaluated[begin][begin + 2 : last + 1]) + before_forward
        totals[self._cells < least[:, None]] = np.inf
        number = totals.argmin(axis=0)
        return totals[number, self._cells], (number + SEGMENT + 2).astype(np.int16)

    def _row(
        self, option: SizedOption, middle: int, rest: Times, seconds: float, least: int, *, is_free: bool = False
    ) -> Times:
        """Times of an option and what follows, but for the slots of its evaluation."""
        shift = option.kept + (int(self.sizes[middle]) if option.holds_result and not is_free else 0)
        return later(rest, shift, seconds, least)

    def _close(self, begin: int, times: Times, choices: Choices, rows: list[tuple[SizedOption, Times, int]]) -> Best:
        """The best where what comes in is held by somebody else, and where it is not.

        Args:
            times, choices: of what holds it itself.
            rows: options, times of theirs, and slots of their evaluation.
        """
        size = int(self.sizes[begin])
        for option, row, forward in rows:
            if option.holds_input:
                improve(times, choices, row, option.number, forward)
        free, free_first = empty(self.slots + 1)
        if size <= self.slots:
            free[size:], free_first[size:] = times[: len(free) - size], choices[: len(free) - size]
        for option, row, forward in rows:
            if not option.holds_input:
                improve(times, choices, row, option.number, forward)
                improve(free, free_first, row, option.number, forward + size)
        return Best((free, times), (free_first, choices))

    def _pieces(self, begin: int, end: int, after: Times) -> Times:
        """Least times of plans whose first blocks, up to each end, are stored together, their input not counted.

        Args:
            after: of those that begin with the next block: (end - begin - 1, slots + 1).
        """
        found, _ = self.extended(begin, end, after)
        return np.concatenate([self.last_of_piece(begin, end)[0][None], found])

    def last_of_piece(self, begin: int, end: int) -> tuple[Times, Choices]:
        middle = begin + 1
        times, choices = empty(self.slots + 1)
        for option in self.stored[begin]:
            is_end = middle == end
            rest = np.zeros(self.slots + 1) if is_end else self.again[middle, end].times[option.holds_result]
            least = self._least(option, middle, end)
            improve(times, choices, self._row(option, middle, rest, option.again, least), option.number)
        return times, choices

    def _least(self, option: SizedOption, middle: int, end: int) -> int:
        """Slots of a block that is stored in a segment."""
        return max(option.forward + self._during_evaluation(end), option.backward + self.gradients[middle])

    def extended(self, begin: int, end: int, after: Times) -> tuple[Times, Choices]:
        """Of pieces that end beyond the next block."""
        middle = begin + 1
        times, choices = empty(*after.shape)
        for option in self.stored[begin]:
            least = self._least(option, middle, end)
            row = later(after, option.kept + int(self.sizes[middle]), option.again, least)
            improve(times, choices, row, option.number)
        return times, choices

    def _fill_top(self, between: int, following: Times) -> None:
        end = following.copy()
        end[:between] = np.inf
        none = np.full(self.slots + 1, -1, np.int16)
        self.top[self.count] = self.top_stored[self.count] = Best((end, end), (none, none))
        rests = {}  # by the end of a group, what follows from each block on, whose input nobody else holds
        for begin in reversed(range(self.count)):
            following_free = (self.top_stored if self.run.joins else self.top)[begin + 1].times[0]
            rests[begin + 1] = np.full((begin + 2, self.slots + 1), np.inf)
            rests[begin + 1][begin + 1] = following_free + self.copying[begin + 1]
            self.top_stored[begin] = stored = self._stored_at_top(begin)
            self.groups[begin] = groups = self._groups(begin, rests)
            if begin and self.run.joins and self.travel[begin - 1]:
                self.ahead[begin] = self._groups(begin, rests, ahead=True)
            for number, end_of_group in enumerate(range(begin + 1, self._last_end(begin) + 1)):
                rests[end_of_group][begin] = groups.times[0][number]
            best = Best(*(tuple(each.copy() for each in pair) for pair in stored))
            for found, first, others in zip(*best, groups.times, strict=True):
                best_end = others.argmin(axis=0)
                improve(found, first, others[best_end, self._cells], (best_end + GROUP + 1).astype(np.int16))
            self.top[begin] = best

    def before_gradient(self, begin: int, *, ahead: bool = False) -> int:
        """Slots that are there when the gradient of a part of the top begins, but for what is kept.

        Args:
            ahead: with the input of the block before it, which is coming back from the host.
        """
        again = self.made_again if begin == 0 else 0
        return self.before_backward + again + (int(self.sizes[begin - 1]) if ahead else 0)

    def _last_end(self, begin: int) -> int:
        """Of groups that begin there."""
        return self.count if self.run.joins else begin + 1

    def _rest_at_top(self, option: SizedOption, middle: int, rest: Times, seconds: float, least: int) -> Times:
        is_free = middle == self.count and self.run.result_is_held
        return self._row(option, middle, rest, seconds, least, is_free=is_free)

    def _stored_at_top(self, begin: int) -> Best:
        middle = begin + 1
        rows = []
        for option in self.stored[begin]:
            least = option.backward + self.before_gradient(begin) + self.gradients[middle]
            rest = self.top[middle].times[option.holds_result]
            row = self._rest_at_top(option, middle, rest, option.seconds, least)
            rows.append((option, row, option.forward + self.before_forward))
        return self._close(begin, *empty(self.slots + 1), rows)

    def _groups(self, begin: int, rests: dict[int, Times], *, ahead: bool = False) -> Best:
        """Of plans whose first blocks, up to each end, are recomputed: (ends, slots + 1).

        Autograd holds the gradient of what the last of them makes while it runs them.

        Args:
            ahead: during the gradient of the first part the input of the block before it comes back from the host.
        """
        ends = range(begin + 1, self._last_end(begin) + 1)
        found = [self._group(begin, end, rests[end], ahead=ahead) for end in ends]
        times, choices = zip(*found, strict=True)
        pairs = [tuple(np.stack([each[held] for each in of]) for held in (0, 1)) for of in (times, choices)]
        return Best(*pairs)  # type: ignore[arg-type]

    def _group(self, begin: int, end: int, rests: Times, *, ahead: bool) -> Best:
        held, middle = self.before_gradient(begin, ahead=ahead) + self.upstream[end], begin + 1
        travel = self.travel[begin - 1] if ahead else 0.0
        rows = []
        for option in self.recomputed[begin]:
            rest = rests[middle] if not option.holds_result else self._held_rest(middle, end)
            seconds = option.seconds + max(0.0, travel - option.gradient_seconds)
            if option.travel and middle < end:
                rest = self.ahead[middle].times[0][end - middle - 1]
            else:
                seconds += option.travel
            row = self._rest_at_top(option, middle, rest, seconds, option.backward + held + self.gradients[middle])
            rows.append((option, row, option.forward + self.before_forward))
        first = self._first_segment(begin, end, held, self.before_forward, rests, travel, at_top=True)
        return self._close(begin, *first, rows)

    def _held_rest(self, begin: int, end: int) -> Times:
        """What follows a part of a group that ends there, whose result is held."""
        if begin < end:
            return self.groups[begin].times[1][end - begin - 1]
        return (self.top_stored if self.run.joins else self.top)[begin].times[1] + self.copying[end]
