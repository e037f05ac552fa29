"""Names of a package that are imported when they are first used: importing the package alone imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_imports(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The module-level ``__getattr__`` (PEP 562) of a package.

    Args:
        package: its name.
        names: module of the package -> the public names that it defines, with spaces between them.
    """
    modules = {name: f"{package}.{module}" for module, listed in names.items() for name in listed.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return find
