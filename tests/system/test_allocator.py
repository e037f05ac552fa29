"""Freed memory: kept in the block, handed back after it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource
from pathlib import Path

import numpy as np

from svtoolkit.system.allocator import freed_memory_kept

def faults(times):
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        [np.ones(6 << 20) for _ in range(3)]  # 48 MiB each, freed as one
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20

faults(1)
before = faults(3)
with freed_memory_kept():
    faults(1)
    within, held = faults(3), resident()
print(before, within, held, resident())
"""


def run(**variables: str) -> list[int]:
    told = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    found = subprocess.run(
        [sys.executable, "-c", CODE], env=told | variables, capture_output=True, text=True, check=True
    )
    return [int(word) for word in found.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is freed is handed back by glibc")
def test_pages_are_not_asked_for_again():
    before, within, held, after = run()
    assert before > 1000
    assert within < before / 20
    assert held - after > 100  # MiB


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="as above")
def test_what_the_user_has_told_it_stands():
    before, within, *_ = run(MALLOC_TRIM_THRESHOLD_="1000000")
    assert within > before / 2 > 500


def test_nothing_is_done_elsewhere(monkeypatch):
    from svtoolkit.system import allocator

    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: pytest.fail("there is no such library"))
    with allocator.freed_memory_kept():
        assert sum([0.5] * 4) == 2
