"""How the names of a network's weights correspond to those of another toolkit, and what is said where they do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from torch import Tensor, nn

from svtoolkit.errors import UserError

DIGITS = "0123456789"
SHOWN = 6
"""Names that a message lists; the others are counted."""


class Part(NamedTuple):
    """Names with a common beginning: ours, theirs, and a pattern of what may follow.

    A ``#`` in both stands for a number, the same in both but the last one: ours is theirs plus ``shift``.
    A part that is optional may be without any weight. Of one that is pointwise, theirs are convolutions of one frame
    where ours are Linear: their weights have a last axis of 1 that ours do not have.
    """

    ours: str
    theirs: str
    rest: str = ".+"
    shift: int = 0
    optional: bool = False
    pointwise: bool = False


class Layout(NamedTuple):
    """All names of a family of networks.

    Attributes:
        network: what the family is called.
        expected: first parts of their names, for messages.
        parts: names by their beginning.
    """

    network: str
    expected: str
    parts: tuple[Part, ...]


class _Renamed(NamedTuple):
    """What a layout makes of names: new name by old one, names that it does not have, parts without a name; and of
    which old names the tensors are of convolutions on one side alone."""

    names: dict[str, str]
    unexpected: list[str]
    missing: list[str]
    pointwise: set[str]


def list_names(names: Sequence[str]) -> str:
    """The first of them in quotes, none of any length, and how many more there are."""
    shown = ", ".join(f"{name!r:.80}" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def rename_to_ours(weights: Mapping[str, Tensor], layouts: Sequence[Layout], toolkit: str) -> dict[str, Tensor]:
    """Weights under the names of a toolkit as ours, by the layout that fits best.

    ``num_batches_tracked`` that averaging made a float becomes an integer again.

    Raises:
        UserError: names that the layout does not have, or parts of it without any.
    """
    layout, renamed = _best(weights, layouts, from_ours=False)
    if problem := _problem(layout, renamed, toolkit):
        raise UserError(f"{problem}; expected {layout.expected}")
    return {
        renamed.names[name]: tensor.long()
        if name.endswith("num_batches_tracked")
        else tensor.squeeze(-1)
        if name in renamed.pointwise and tensor.dim() == 3
        else tensor
        for name, tensor in weights.items()
    }


def rename_to_theirs(weights: Mapping[str, Tensor], layouts: Sequence[Layout], toolkit: str) -> dict[str, Tensor]:
    """Our weights under the names of a toolkit, by the layout that fits best.

    Raises:
        UserError: names that no network of theirs has.
    """
    layout, renamed = _best(weights, layouts, from_ours=True)
    if problem := _problem(layout, renamed, toolkit):
        raise UserError(f"{problem}; {toolkit}'s names are known for {', '.join(_families(layouts))}")
    return {
        renamed.names[name]: tensor.unsqueeze(-1) if name in renamed.pointwise and tensor.dim() == 2 else tensor
        for name, tensor in weights.items()
    }


def fill_network(network: nn.Module, ours: Mapping[str, Tensor]) -> None:
    """Give a network weights under our names, all of them.

    Raises:
        UserError: as ``check_fit``; the network is as it was then.
    """
    check_fit(network, ours)
    network.load_state_dict(ours)


def check_fit(network: nn.Module, ours: Mapping[str, Tensor]) -> None:
    """Refuse weights under our names that are not those of a network, which may be without memory.

    Raises:
        UserError: weights that are missing, that the network does not have, or of another shape.
    """
    wanted = network.state_dict()
    problems = []
    if missing := [name for name in wanted if name not in ours]:
        problems.append(f"there is no {list_names(missing)}")
    if unexpected := [name for name in ours if name not in wanted]:
        problems.append(f"the network has no {list_names(unexpected)}")
    shapes = [
        f"{name!r} is {tuple(ours[name].shape)} where the network has {tuple(wanted[name].shape)}"
        for name in wanted
        if name in ours and ours[name].shape != wanted[name].shape
    ]
    if shapes:
        problems.append(shapes[0] + (f", and {len(shapes) - 1} more are of another shape" if shapes[1:] else ""))
    if problems:
        raise UserError(
            f"the weights are those of another network (under our names): {'; '.join(problems)}; build the network "
            "that the settings beside them describe"
        )


def _problem(layout: Layout, renamed: _Renamed, toolkit: str) -> str:
    """What keeps weights from being those of a layout, the nearest one; nothing: they are."""
    nearest = f"a {toolkit} {layout.network}"
    if not renamed.names and not renamed.unexpected:
        return "there are no weights"
    if renamed.unexpected:
        are = "are not weights" if len(renamed.unexpected) > 1 else "is not a weight"
        which = ", the nearest family" if len(renamed.unexpected) > len(renamed.names) else ""
        return f"{list_names(renamed.unexpected)} {are} of {nearest}{which}"
    if renamed.missing:
        return f"{nearest} has weights {list_names(renamed.missing)}, and there are none here"
    return ""


def _families(layouts: Iterable[Layout]) -> list[str]:
    return list(dict.fromkeys(layout.network.partition(" with ")[0] for layout in layouts))


def _best(names: Iterable[str], layouts: Sequence[Layout], *, from_ours: bool) -> tuple[Layout, _Renamed]:
    """The layout that leaves the fewest names over, and of these the one with the fewest parts without a name."""
    names = list(names)
    found: list[tuple[Layout, _Renamed]] = []
    limit = len(names)
    for layout in layouts:
        renamed = _rename(names, layout, limit, from_ours=from_ours)
        limit = min(limit, len(renamed.unexpected))
        found.append((layout, renamed))
    return min(found, key=lambda pair: (len(pair[1].unexpected), len(pair[1].missing)))


def _rename(names: Iterable[str], layout: Layout, limit: int, *, from_ours: bool) -> _Renamed:
    """Given up as soon as more names are unexpected than ``limit``, as of a layout that is not the best."""
    renamed: dict[str, str] = {}
    unexpected: list[str] = []
    pointwise: set[str] = set()
    used: set[Part] = set()
    for name in names:
        if len(unexpected) > limit:
            break
        for part in _parts_by_beginning(layout, from_ours).get(name.partition(".")[0].rstrip(DIGITS), ()):
            new = _rename_in(part, name, from_ours=from_ours)
            if new is not None:
                renamed[name] = new
                used.add(part)
                if part.pointwise:
                    pointwise.add(name)
                break
        else:
            unexpected.append(name)
    missing = [
        (part.ours if from_ours else part.theirs) + "*"
        for part in layout.parts
        if part not in used and not part.optional
    ]
    return _Renamed(renamed, unexpected, missing, pointwise)


def _rename_in(part: Part, name: str, *, from_ours: bool) -> str | None:
    source, target = (part.ours, part.theirs) if from_ours else (part.theirs, part.ours)
    if not name.startswith(source.partition("#")[0]):
        return None
    found = _pattern(source, part.rest).fullmatch(name)
    if found is None:
        return None
    numbers = [found[f"number{index}"] for index in range(source.count("#"))]
    if part.shift:
        numbers[-1] = str(int(numbers[-1]) + (-part.shift if from_ours else part.shift))
        if numbers[-1].startswith("-"):  # there is none before the first
            return None
    return _filled(target, numbers) + found["rest"]


@cache
def _parts_by_beginning(layout: Layout, from_ours: bool) -> dict[str, list[Part]]:
    """Parts by what is before the first point of their names, without the digits or the number that it ends with."""
    found: dict[str, list[Part]] = {}
    for part in layout.parts:
        beginning = (part.ours if from_ours else part.theirs).partition(".")[0]
        found.setdefault(beginning.rstrip(DIGITS + "#"), []).append(part)
    return found


@cache
def _pattern(beginning: str, rest: str) -> re.Pattern[str]:
    first, *others = map(re.escape, beginning.split("#"))
    numbers = (rf"(?P<number{index}>0|[1-9]\d{{0,8}}){part}" for index, part in enumerate(others))
    return re.compile(first + "".join(numbers) + f"(?P<rest>{rest})")


def _filled(template: str, numbers: Sequence[str]) -> str:
    first, *others = template.split("#")
    return first + "".join(number + part for number, part in zip(numbers, others, strict=True))
