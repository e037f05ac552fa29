"""Recipes call an `svt` that starts at once; a test of signals takes it out of the environment again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def recipes_call_the_warm_program(warm_svt: Path) -> Iterator[None]:
    from warm_svt import in_bash

    with pytest.MonkeyPatch.context() as patch:
        for name, value in in_bash(warm_svt).items():
            patch.setenv(name, value)
        yield
