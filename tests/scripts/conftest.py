"""The stand-in machine of the tests of scripts/setup.sh."""

from __future__ import annotations

from pathlib import Path

import pytest
from setup_stand_ins import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
