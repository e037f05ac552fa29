"""Things that a configuration chooses by name: our own rows, and those that installed packages add.

A package adds a row through an entry point, whose name is the word that the configuration chooses:

    [project.entry-points."svtoolkit.models"]
    my_network = "my_package.rows:my_network"        # my_network = Row("my_package.network:build", MySettings)

Names are listed without importing anything; what stands behind one is imported when it is chosen. docs/extending.md
tells what each kind of row builds.
"""

from __future__ import annotations

import functools
import importlib
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from svtoolkit.errors import UserError

if TYPE_CHECKING:
    from importlib import metadata


@dataclass(frozen=True)
class Row:
    """What stands behind a name.

    Attributes:
        target: "module:attribute" of what is built or called, imported when it is first needed.
        settings: dataclass of what can be set: default, type and help of each key. None: what all of its kind have.
        arguments: fixed arguments of the target, which tell one row of a family from another.
        help: what it is, in a few words.
    """

    target: str
    settings: type[Any] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    help: str = ""

    def load(self) -> Any:
        """The target itself."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


@dataclass(eq=False)
class Registry(Mapping[str, Row]):
    """Rows by name, ours first, then those of installed packages.

    Args:
        kind: what a row is, in a message: network, loss, optimizer, ...
        entry_points: the group through which packages add rows, such as svtoolkit.models.
        rows: our own.
        settings: dataclass that the settings of every row derive from, and those of a row that names none.
    """

    kind: str
    entry_points: str
    rows: dict[str, Row]
    settings: type[Any] | None = None

    def __iter__(self) -> Iterator[str]:
        yield from self.rows
        yield from (name for name in self._added if name not in self.rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.rows or name in self._added)

    def __getitem__(self, name: str) -> Row:
        """The row of a name; its settings are never None where the kind has some.

        Raises:
            UserError: there is none (names the nearest), two packages add it, or the one that does cannot be imported
                or adds something else.
        """
        if name not in self:
            raise UserError(
                f"there is no {self.kind} {name!r:.80}; {nearest(name, self)}(all: {', '.join(self)})"
                f"{self.missing_package(name)}"
            )
        points = self._added.get(name, [])
        if len(points) + (name in self.rows) > 1:
            packages = [*["svtoolkit"][: name in self.rows], *map(_package, points)]
            raise UserError(
                f"{self.kind} {name!r} is added by {' and by '.join(packages)}; uninstall one of them, or rename its "
                f"entry point in the group {self.entry_points}"
            )
        row = self.rows[name] if name in self.rows else self._from_package(name, points[0])
        return row if row.settings is not None else replace(row, settings=self.settings)

    def missing_package(self, name: str) -> str:
        """The end of a sentence about a name that nothing has."""
        shown = ascii(name).strip("'")
        return (
            f"; if a package of yours adds it, install that package here: it needs an entry point {shown:.80} in the "
            f"group {self.entry_points}"
        )

    def load(self, name: str) -> Any:
        """The target of a row.

        Raises:
            UserError: as for the row; a target of a package that cannot be imported.
        """
        row = self[name]
        if name in self.rows:
            return row.load()
        try:
            return row.load()
        except Exception as error:
            raise self._broken(name, row.target, error) from error

    def _from_package(self, name: str, point: metadata.EntryPoint) -> Row:
        try:
            row = point.load()
        except Exception as error:
            raise self._broken(name, point.value, error) from error
        if not isinstance(row, Row):
            raise UserError(
                f"{self.kind} {name!r}: {point.value} of {_package(point)} is a {type(row).__name__}, "
                "expected a svtoolkit.registry.Row"
            )
        base = self.settings
        if base is not None and row.settings is not None and not _derives(row.settings, base):
            raise UserError(
                f"{self.kind} {name!r}: the settings of {point.value} of {_package(point)} are {row.settings!r}, "
                f"expected a dataclass that derives from {base.__module__}.{base.__name__}"
            )
        return row

    def _broken(self, name: str, target: str, error: Exception) -> UserError:
        return UserError(
            f"{self.kind} {name!r} is added by {_package(self._added[name][0])} ({target}), which cannot be imported: "
            f"{type(error).__name__}: {error}; repair or reinstall that package"
        )

    @functools.cached_property
    def _added(self) -> dict[str, list[metadata.EntryPoint]]:
        """Name -> the entry points that add it; a package that is found in two places of sys.path counts once."""
        from importlib import metadata

        added: dict[str, list[metadata.EntryPoint]] = {}
        for point in metadata.entry_points(group=self.entry_points):
            same = added.setdefault(point.name, [])
            if all((point.value, _package(point)) != (other.value, _package(other)) for other in same):
                same.append(point)
        return added


def check_settings(
    what: str, settings: type[Any], values: Mapping[str, Any], *, beside: Mapping[str, Any] | None = None
) -> None:
    """Refuse keys that a dataclass does not have, and values of another type than its fields.

    Args:
        what: whose settings they are, as a message begins: "network resnet34".
        settings: the dataclass; its field ``name`` is not a setting.
        values: what was given.
        beside: further keys and their types, which come first.

    Raises:
        UserError: names the key, what was found, what is expected.
    """
    hints = _hints(settings)  # type: ignore[arg-type]  # every class can be hashed
    known = {**(beside or {}), **{item.name: hints[item.name] for item in fields(settings) if item.name != "name"}}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{what} has no option {key!r:.80}; {nearest(key, known)}valid are {', '.join(known)}")
        if not _fits(value, known[key]):
            raise UserError(f"{what}: {key} is {value!r:.80}, expected {_in_words(known[key])}")


@functools.cache
def _hints(settings: type[Any]) -> dict[str, Any]:
    """Types of the fields; what their annotations say is evaluated, once."""
    return typing.get_type_hints(settings)


def defaults(settings: type[Any]) -> dict[str, Any]:
    """What the fields of a dataclass are where they are not given; without ``name`` and those that must be given."""
    values: dict[str, Any] = {}
    for item in fields(settings):
        if item.default_factory is not MISSING:
            values[item.name] = item.default_factory()
        elif item.name != "name" and item.default is not MISSING and item.default != "???":
            values[item.name] = item.default
    return values


def nearest(word: object, known: Iterable[str]) -> str:
    """``did you mean 'resnet34'? `` or nothing."""
    import difflib

    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word).lower(), names, n=1, cutoff=0.4)
    return f"did you mean {names[near[0]]!r}? " if near else ""


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _derives(settings: object, base: type[Any]) -> bool:
    return isinstance(settings, type) and is_dataclass(settings) and issubclass(settings, base)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; an int is a float, a bool is neither, nan and inf are no numbers."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, member) for member in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint in (int, bool, str):
        return type(value) is hint
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


WORDS = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
    Any: "a list or a value",
}


def _in_words(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, arguments))
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (list, tuple):
        return f"a list, each item {_in_words(arguments[0])}"
    return WORDS.get(hint) or str(getattr(hint, "__name__", hint))
