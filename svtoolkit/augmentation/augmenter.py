"""The list of changes: from a random generator to changed crops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from svtoolkit.augmentation.change import Change, Parameters
from svtoolkit.augmentation.draws import pick
from svtoolkit.device import send

ROWS_AT_ONCE = 16
"""Rows of a batch that are transformed at once: bounds the memory to about 20 MB for crops of 2 s, which a CPU finds in
its cache: about a fifth less time than with 64."""


class ChangedRows(NamedTuple):
    """Rows of a batch that a change is made to: their numbers, int64, (changed,), and the parameters of each."""

    rows: Tensor
    parameters: Mapping[str, Tensor]

    def to(self, device: torch.device) -> ChangedRows:
        """The same on another device; see ``send``."""
        rows, *values = send([self.rows, *self.parameters.values()], device)
        return ChangedRows(rows, dict(zip(self.parameters, values, strict=True)))


class Augmenter:
    """Draws which changes a crop gets, decodes what they need, and makes them.

    Args:
        changes: by name, in the order in which they are drawn and made.
        probability: share of crops that are augmented at all.
        combinations: (names, weight): of the changes named in any of them, a crop gets those of one combination, drawn
            in proportion to the weights. The others are drawn for every crop that is augmented.
    """

    def __init__(
        self,
        changes: Mapping[str, Change] | None = None,
        *,
        probability: float = 1.0,
        combinations: Sequence[tuple[frozenset[str], float]] = (),
    ) -> None:
        self.changes = dict(changes or {})
        self.probability = probability
        self.combinations = combinations
        self._combined = frozenset().union(*(names for names, _ in combinations))

    def draw(self, generator: np.random.Generator) -> dict[str, Parameters]:
        """Changes of a crop and their parameters, which depend on the state of ``generator`` alone."""
        if not self.changes or generator.random() >= self.probability:
            return {}
        left_out = self._combined - pick(generator, self.combinations) if self.combinations else frozenset()
        drawn = {name: change.draw(generator) for name, change in self.changes.items() if name not in left_out}
        return {name: parameters for name, parameters in drawn.items() if parameters is not None}

    def load(self, drawn: Mapping[str, Parameters], samples: int) -> dict[str, Parameters]:
        """Decode what the changes of a crop of so many samples need; errors as of ``Change.load``."""
        return {name: self.changes[name].load(parameters, samples) for name, parameters in drawn.items()}

    def apply(self, waveforms: Tensor, changes: Mapping[str, ChangedRows]) -> Tensor:
        """Change the rows of a batch.

        Args:
            waveforms: float32, (batch, samples); left as they are.
            changes: from ``collate_changes``, on the same device.

        Returns:
            (batch, samples); rows to which nothing happens are those of ``waveforms`` bit by bit, and no row depends on
            another but by the rounding of its transforms.
        """
        changed = waveforms.clone()
        for change, (rows, parameters) in self._in_order(changes):
            for begin in range(0, len(rows), ROWS_AT_ONCE):
                part = slice(begin, begin + ROWS_AT_ONCE)
                chosen = {key: values[part] for key, values in parameters.items()}
                changed[rows[part]] = change.apply(changed[rows[part]], chosen)
        return changed

    def apply_to_crop(self, samples: np.ndarray, loaded: Mapping[str, Parameters]) -> np.ndarray:
        """A batch of one: float32, (samples,) -> a new array, or the same one where nothing happens."""
        waveforms = torch.from_numpy(samples).unsqueeze(0)
        for change, (_, parameters) in self._in_order(collate_changes([loaded])):
            waveforms = change.apply(waveforms, parameters)
        return waveforms[0].numpy() if loaded else samples

    def description(self) -> str:
        """For the log: what happens, and how often."""
        listed = ", ".join(filter(None, (change.description() for change in self.changes.values())))
        return f"{100 * self.probability:g} % of crops get {listed}"

    def fingerprint(self) -> str:
        """Changes whenever a draw would mean other recordings: guards a resumed run. Empty without any."""
        return " ".join(filter(None, (self.changes[name].fingerprint() for name in sorted(self.changes))))

    def _in_order(self, changes: Mapping[str, ChangedRows]) -> list[tuple[Change, ChangedRows]]:
        return [(self.changes[name], changes[name]) for name in sorted(changes, key=list(self.changes).index)]


UNCHANGED = Augmenter()
"""Changes nothing, and draws nothing."""


def collate_changes(crops: Sequence[Mapping[str, Parameters]]) -> dict[str, ChangedRows]:
    """Loaded changes of every crop of a batch -> of the batch; holds nothing of rows that stay as they are."""
    rows: dict[str, list[int]] = {}
    for row, loaded in enumerate(crops):
        for name in loaded:
            rows.setdefault(name, []).append(row)
    return {
        name: ChangedRows(
            torch.tensor(chosen),
            {key: _stack([crops[row][name][key] for row in chosen]) for key in crops[chosen[0]][name]},
        )
        for name, chosen in rows.items()
    }


def _stack(values: Sequence[Any]) -> Tensor:
    """Numbers as (rows,), arrays as (rows, longest), filled up with zeros."""
    if not isinstance(values[0], np.ndarray):
        return torch.tensor(values, dtype=torch.float32 if isinstance(values[0], float) else None)
    padded = torch.zeros(len(values), max(map(len, values)))
    for row, array in zip(padded, values, strict=True):
        row[: len(array)] = torch.from_numpy(array)
    return padded
