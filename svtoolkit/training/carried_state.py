"""The state of an optimizer, taken along to other parameters."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

Groups = Sequence[Sequence[Hashable]]
"""What tells the parameters of an optimizer apart, group by group."""


def carry_over(state: dict[str, Any], before: Groups, after: Groups) -> dict[str, Any]:
    """The state for other parameters: those that are there before and after keep theirs, new ones have none yet.

    Args:
        state: as an optimizer's ``state_dict`` gives it, of the parameters ``before``.
        before, after: names and shapes, say. Groups keep their settings, counted from the last; one that was not there
            has those of the last without weight decay.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    known = dict(zip([each for group in before for each in group], numbers, strict=True))
    settings = state["param_groups"]
    moved: dict[int, Any] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for index, group in enumerate(after):
        place = index - len(after)
        own = settings[place] if -place <= len(settings) else {**settings[-1], "weight_decay": 0.0}
        groups.append({**own, "params": list(range(number, number + len(group)))})
        for each in group:
            if each in known and known[each] in state["state"]:
                moved[number] = state["state"][known[each]]
            number += 1
    return {**state, "state": moved, "param_groups": groups}
