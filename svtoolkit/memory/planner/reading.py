"""The plan that takes the least time, read from the tables of a run."""

from __future__ import annotations

from svtoolkit.memory.planner.slots import Best, Choices
from svtoolkit.memory.planner.stretches import GROUP, PIECE, SEGMENT, RunTable
from svtoolkit.reversible.plans import Part, Plan, Segment


def read_plan(table: RunTable, slots: int) -> tuple[Plan, int]:
    """The fastest in so many slots, and the slots that are left for the runs after it."""
    reader = _Reader(table, slots, table.run.result_is_held)
    after_group = False
    while reader.begin < table.count:
        best = table.top_stored if after_group and table.run.joins else table.top  # two groups would be one
        choice = reader.choice(best[reader.begin])
        after_group = choice >= GROUP
        if choice < GROUP:
            reader.take_option(choice)
            continue
        end, ahead = reader.begin + choice - GROUP, False
        while reader.begin < end:
            held = table.before_gradient(reader.begin, ahead=ahead) + table.upstream[end]
            groups = (table.ahead if ahead else table.groups)[reader.begin]
            choices = groups.choices[reader.is_held][end - reader.begin - 1]
            ahead = reader.take(int(choices[reader.slots]), held)
    return tuple(reader.parts), reader.slots


def _inside(table: RunTable, begin: int, end: int, slots: int) -> tuple[Part, ...]:
    reader = _Reader(table, slots, result_is_held=False)
    reader.begin = begin
    while reader.begin < end:
        choice = reader.choice(table.inside[reader.begin, end])
        if choice >= PIECE:
            reader.take_piece(reader.begin + choice - PIECE, end)
        else:
            reader.take(choice, 0)
    return tuple(reader.parts)


class _Reader:
    """Parts so far, where the rest begins, whether somebody holds what comes in there, and slots that are left."""

    def __init__(self, table: RunTable, slots: int, result_is_held: bool) -> None:
        self.table, self.slots, self.result_is_held = table, slots, result_is_held
        self.parts: list[Part] = []
        self.begin, self.is_held = 0, True

    def choice(self, best: Best) -> int:
        return int(best.choices[self.is_held][self.slots])

    def take(self, choice: int, held: int) -> bool:
        """An option, or a segment during which so many slots are held; whether its input comes back from the host."""
        if choice < SEGMENT:
            self.take_option(choice)
            return self.table.run.blocks[self.begin - 1].options[choice].travel > 0
        self._hold_input()
        end = self.begin + choice - SEGMENT
        self.parts.append(Segment(_inside(self.table, self.begin, end, self.slots - held)))
        self.begin, self.is_held = end, False
        return False

    def take_option(self, number: int) -> None:
        option = self.table.run.blocks[self.begin].options[number]
        listed = self.table.stored[self.begin] + self.table.recomputed[self.begin]
        if option.holds_input:
            self._hold_input()
        self.slots -= next(each.kept for each in listed if each.number == number)
        self.parts.append(option.part(self.begin))
        self.begin += 1
        is_free = self.begin == self.table.count and self.result_is_held
        self.slots -= int(self.table.sizes[self.begin]) if option.holds_result and not is_free else 0
        self.is_held = option.holds_result

    def take_piece(self, to: int, end: int) -> None:
        """Blocks that are stored together, inside a segment."""
        times, choices = self.table.last_of_piece(to - 1, end)
        listed: list[Choices] = [choices]
        for begin in reversed(range(self.begin, to - 1)):
            rows, first = self.table.extended(begin, end, times[None])
            times = rows[0]
            listed.insert(0, first[0])
        for choices in listed:
            self._hold_input()
            self.is_held = True
            self.take_option(int(choices[self.slots]))
            if self.begin < to and not self.is_held:  # the next keeps it
                self._hold_input()
                self.is_held = True

    def _hold_input(self) -> None:
        if not self.is_held:
            self.slots -= int(self.table.sizes[self.begin])
            self.is_held = True
