"""Modules of other toolkits without the __init__ of their packages, which need much that is not there."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@contextmanager
def toolkit_modules(
    package: str, *names: str, given: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[list[ModuleType]]:
    """Modules of a package by their names; while it lasts they can be imported by it, and afterwards none of them can.

    Args:
        package: its name; where it is not installed, the test is skipped.
        names: of modules, without that of the package.
        given: name of a module -> attributes of what stands in for it.
    """
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # the package that it would be in
        found = None
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed: scripts/setup.sh --extras dev")
    root, before = Path(next(iter(found.submodule_search_locations))), dict(sys.modules)
    top = package.partition(".")[0]
    try:
        for name in names:
            parts = name.split(".")[:-1]
            for depth in range(len(parts) + 1):
                _stand_in(".".join([package, *parts[:depth]]), __path__=[str(root.joinpath(*parts[:depth]))])
        for name, attributes in (given or {}).items():
            for parent in (name.rsplit(".", depth)[0] for depth in range(name.count("."), 0, -1)):
                if parent not in sys.modules:
                    _stand_in(parent, __path__=[])
            _stand_in(name, **attributes)
        yield [importlib.import_module(f"{package}.{name}") for name in names]
    finally:
        stood_in = {*(given or {}), top}
        for name in set(sys.modules) - set(before):
            if name in stood_in or name.partition(".")[0] == top:
                del sys.modules[name]
        sys.modules.update({name: module for name, module in before.items() if name.partition(".")[0] == top})


def _stand_in(name: str, **attributes: Any) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module
