"""What becomes of the activations of a chain: plans by the number of modules.

A plan names every module of a chain once, in order, as a ``Leaf``, alone or in a ``Segment``:

    (Leaf(0), Segment((Leaf(1),)), Segment((Leaf(2), Segment((Leaf(3), Leaf(4, "norm"))))), Leaf(5, "expand"))

stores what module 0 makes; keeps the input of 1 and evaluates it once more; keeps the input of 2, backward evaluates it
once more and stores what it makes, and gets from there to the input of 3, which is evaluated together with 4; keeps of
5 what cannot be made again by its norms and expansions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias, get_args

from svtoolkit.reversible.stash import Stash

Way: TypeAlias = Literal["store", "norm", "expand", "groups", "layers", "chunks"]
WAYS: tuple[Way, ...] = get_args(Way)
FROM_INPUT: tuple[Way, ...] = ("groups", "layers", "chunks")
"""Ways that keep the input alone."""


class Leaf(NamedTuple):
    """A module, and what is kept of it from its evaluation to its gradient.

    Attributes:
        position: of the module in the chain.
        way: what is kept.
            ``store``: what autograd saves.
            ``norm``: the same without what BatchNorm and pointwise functions after it make, which is made again.
            ``expand``: and without what 1x1 convolutions to more channels make.
            ``groups``: its input alone; its gradient is that of one group of channels or layers after the other, each
            evaluated again. Of modules that can (``svtoolkit.reversible.manual_backward.can_group``); else as
            ``Segment((Leaf(position),))``.
            ``layers``: the same, where what convolutions make meanwhile is there for as long as it is needed.
            ``chunks``: its input alone; its gradient is that of a sixteenth of the batch after the other, evaluated
            once more for every BatchNorm that another one reads. Of modules that can
            (``svtoolkit.reversible.chunks.can_chunk``); else as ``Segment((Leaf(position),))``.
    """

    position: int
    way: Way = "store"


class Segment(NamedTuple):
    """Parts of which the input of the first is kept: backward evaluates them once more, by what each part says.

    What the last part makes is not evaluated again where nobody reads it: of a segment, and of groups. A segment of one
    leaf is a module that is recomputed by itself; of a reversible sequence the result is kept, and inverted.

    Attributes:
        parts: in order, at least one.
        stash: how the input is kept; None: as it is.
    """

    parts: tuple[Leaf | Segment, ...]
    stash: Stash | None = None


Part: TypeAlias = "Leaf | Segment"
Plan: TypeAlias = "tuple[Part, ...]"
Planner: TypeAlias = Callable[[int], Plan]
"""Number of modules -> what becomes of them. Neighbouring chains with the same planner are one: a plan of a whole
network is a planner that all of its chains share, which is called with the number of all their modules. Where it has an
attribute ``keeps_norms`` that is true, what BatchNorms found in the first evaluation is kept for all others."""


def by_block(count: int, stash: Stash | None = None) -> Plan:
    """Each module by itself: all inputs are kept, one more forward pass."""
    return tuple(Segment((Leaf(position),), stash) for position in range(count))


def by_root(count: int) -> Plan:
    """About sqrt(count) segments of about as many modules (Chen et al. 2016, sec. 4.1): O(sqrt n), one more pass."""
    bounds = _shares(0, count, max(1, round(math.sqrt(count))))
    return tuple(Segment(tuple(Leaf(position) for position in range(*pair))) for pair in bounds)


def by_halves(count: int) -> Plan:
    """Halves of halves, to single modules (Chen et al. 2016, sec. 4.3): O(log n), about log2(n) / 2 more passes."""
    return _halved(0, count)


def leaves(*parts: Part) -> Iterator[Leaf]:
    """Of all modules, in order."""
    for part in parts:
        if isinstance(part, Leaf):
            yield part
        else:
            yield from leaves(*part.parts)


def positions(*parts: Part) -> Iterator[int]:
    """Of all modules, in order."""
    return (leaf.position for leaf in leaves(*parts))


def one_by_one(plan: Plan) -> list[Part]:
    """A part for each module, for whoever needs what each of them makes: modules of a segment by themselves."""
    found: list[Part] = []
    for part in plan:
        if isinstance(part, Leaf) or len(list(positions(part))) == 1:
            found.append(part)
        else:
            found.extend(Segment((leaf,), part.stash) for leaf in leaves(part))
    return found


def is_stored(part: Part) -> bool:
    """Whether autograd keeps what a part's gradient needs."""
    return isinstance(part, Leaf) and part.way not in FROM_INPUT


def runs_of(plan: Plan) -> list[tuple[bool, Plan]]:
    """Neighbours that autograd stores, and neighbours that are recomputed: (whether stored, which)."""
    return [(stored, tuple(group)) for stored, group in groupby(plan, key=is_stored)]


def pieces_of(plan: Plan) -> list[Plan]:
    """Neighbours that autograd stores together, all else by itself."""
    found: list[Plan] = []
    for stored, group in runs_of(plan):
        found.extend([group] if stored else [(part,) for part in group])
    return found


def cuts_of(part: Part) -> list[int]:
    """Positions in a part at whose input its second evaluation begins anew."""
    if isinstance(part, Leaf):
        return []
    begins = [next(positions(*piece)) for piece in pieces_of(part.parts)]
    return begins + [cut for inner in part.parts for cut in cuts_of(inner)]


def only_leaf(part: Part) -> Leaf | None:
    """The leaf that a part is or consists of."""
    if isinstance(part, Leaf):
        return part
    inner = part.parts[0]
    return inner if len(part.parts) == 1 and isinstance(inner, Leaf) else None


def check_plan(plan: Plan, count: int) -> None:
    """Raise ValueError where a plan is not one of so many modules."""
    if not all(_has_parts(part) for part in plan):
        raise ValueError("a plan has a segment without parts, expected at least one in each")
    if list(positions(*plan)) != list(range(count)):
        raise ValueError(f"a plan has the positions {list(positions(*plan))}, expected each of {count} once, in order")
    ways = {leaf.way for part in plan for leaf in leaves(part)}
    if unknown := sorted(ways - set(WAYS)):
        raise ValueError(f"a plan has the way {unknown[0]!r}, expected one of {', '.join(WAYS)}")


def _has_parts(part: Part) -> bool:
    return isinstance(part, Leaf) or (bool(part.parts) and all(_has_parts(inner) for inner in part.parts))


def _halved(begin: int, end: int) -> Plan:
    if end - begin <= 1:
        return (Segment((Leaf(begin),)),) if end > begin else ()
    middle = (begin + end + 1) // 2
    return tuple(
        Segment(inner) if len(inner) > 1 else inner[0]  # a segment of one segment keeps the same input twice
        for inner in (_halved(begin, middle), _halved(middle, end))
    )


def _shares(begin: int, end: int, count: int) -> list[tuple[int, int]]:
    """Bounds of so many parts, as equal as may be."""
    bounds = [begin + (end - begin) * part // count for part in range(count + 1)]
    return [pair for pair in pairwise(bounds) if pair[0] < pair[1]]
