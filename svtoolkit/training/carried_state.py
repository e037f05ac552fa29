"""The state of an optimizer, taken along to other parameters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

Groups = Sequence[Sequence[Hashable]]
"""What tells the parameters of an optimizer apart, group by group."""


def carry_over(
    state: dict[str, Any], before: Groups, after: Groups, settings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The state for other parameters: those that are there before and after keep theirs, new ones have none yet.

    Args:
        state: as an optimizer's ``state_dict`` gives it, of the parameters ``before``.
        before, after: names and shapes, say.
        settings: of the groups ``after``.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    known = dict(zip([each for group in before for each in group], numbers, strict=True))
    moved: dict[int, Any] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for group, own in zip(after, settings, strict=True):
        groups.append({**own, "params": list(range(number, number + len(group)))})
        for each in group:
            if each in known and known[each] in state["state"]:
                moved[number] = state["state"][known[each]]
            number += 1
    return {**state, "state": moved, "param_groups": groups}
