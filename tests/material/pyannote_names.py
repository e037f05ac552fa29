"""Classes that a checkpoint of pyannote names: they have to be there to write one."""

from __future__ import annotations

import enum
import sys
from dataclasses import make_dataclass
from types import ModuleType

import pytest


def stand_in_for_pyannote(patched: pytest.MonkeyPatch) -> None:
    """Modules with classes of these names, until the patch is undone."""
    task = ModuleType("pyannote.audio.core.task")
    for name, kind in {
        "Problem": enum.Enum("Problem", "A B"),
        "Resolution": enum.Enum("Resolution", "A B"),
        "Specifications": make_dataclass("Specifications", ["problem", "resolution", "duration"]),
    }.items():
        kind.__module__, kind.__qualname__ = task.__name__, name
        setattr(task, name, kind)
    for package in ("pyannote", "pyannote.audio", "pyannote.audio.core"):
        patched.setitem(sys.modules, package, ModuleType(package))
    patched.setitem(sys.modules, task.__name__, task)
