"""Things that a configuration chooses by name: our own rows, and those that installed packages add.

A package adds a row through an entry point, whose name is the word that the configuration chooses:

    [project.entry-points."svtoolkit.models"]
    my_network = "my_package.rows:my_network"        # my_network = Row("my_package.network:build", MySettings)

Names are listed without importing anything; what stands behind one is imported when it is chosen.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from svtoolkit.errors import UserError


@dataclass(frozen=True)
class Row:
    """What stands behind a name.

    Attributes:
        target: "module:attribute" of what is built or called, imported when it is first needed.
        settings: dataclass of what can be set: default, type and help of each key. None: nothing but the name.
        arguments: fixed arguments of the target, which tell one row of a family from another.
        help: what it is, in one line.
    """

    target: str
    settings: type[Any] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    help: str = ""

    def load(self) -> Any:
        """The target itself."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


class Registry(Mapping[str, Row]):
    """Rows by name, ours first, then those of installed packages.

    Args:
        kind: what a row is, in a message: network, loss, optimizer, ...
        entry_points: the group through which packages add rows, such as svtoolkit.models.
        rows: our own.
    """

    def __init__(self, kind: str, entry_points: str, rows: Mapping[str, Row]) -> None:
        self.kind = kind
        self.entry_points = entry_points
        self.rows = dict(rows)

    def __iter__(self) -> Iterator[str]:
        yield from self.rows
        yield from (name for name in self._added if name not in self.rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.rows or name in self._added

    def __getitem__(self, name: str) -> Row:
        """The row of a name.

        Raises:
            UserError: there is none (names the nearest), or the package that adds it cannot be imported.
        """
        if name in self.rows:
            return self.rows[name]
        point = self._added.get(name)
        if point is None:
            near = difflib.get_close_matches(str(name).lower(), list(self), n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UserError(
                f"there is no {self.kind} {name!r}; {hint}(all: {', '.join(self)}); if a package of yours adds it, "
                f"install that package here: it needs an entry point {name} in the group {self.entry_points}"
            )
        try:
            row = point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.value
            raise UserError(
                f"{self.kind} {name!r} is added by {package} ({point.value}), which cannot be imported: "
                f"{type(error).__name__}: {error}; repair or reinstall that package"
            ) from error
        if not isinstance(row, Row):
            raise UserError(
                f"{self.kind} {name!r}: the entry point {point.value} is a {type(row).__name__}, "
                "expected a svtoolkit.registry.Row"
            )
        return row

    @functools.cached_property
    def _added(self) -> dict[str, metadata.EntryPoint]:
        return {point.name: point for point in metadata.entry_points(group=self.entry_points)}
