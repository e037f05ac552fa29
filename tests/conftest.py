"""What tests of several packages share: modules of other toolkits that ours are compared with."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def wespeaker() -> Callable[[str], ModuleType]:
    """Imports one module of WeSpeaker without running the package's __init__, which needs much that is not there."""
    found = importlib.util.find_spec("wespeaker")
    if found is None or found.origin is None:
        pytest.skip("WeSpeaker is not installed: scripts/setup.sh --extras dev")
    folder = Path(found.origin).parent

    def load(name: str) -> ModuleType:
        before = set(sys.modules)
        try:
            for package in ("wespeaker", "wespeaker.models", "wespeaker.utils"):
                stand_in = ModuleType(package)
                stand_in.__path__ = [str(folder.joinpath(*package.split(".")[1:]))]
                sys.modules[package] = stand_in
            return importlib.import_module(f"wespeaker.{name}")
        finally:
            for module in set(sys.modules) - before:
                if module.partition(".")[0] == "wespeaker":
                    del sys.modules[module]

    return load
