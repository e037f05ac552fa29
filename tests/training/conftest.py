"""The corpus of the tests of training, and a run on it that nothing disturbed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from speech_material import speech
from tiny_runs import tiny_config

from svtoolkit.training.experiment import train

__all__ = ["speech"]


@pytest.fixture(scope="session")
def finished(speech: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """exp_dir of the tiny run as it is, finished; not to be changed."""
    exp_dir = tmp_path_factory.mktemp("finished") / "exp"
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)  # as the command line sets it
    try:
        assert train(tiny_config(speech, exp_dir)) is None
    finally:
        root.setLevel(level)
    return exp_dir
