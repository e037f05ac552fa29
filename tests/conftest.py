"""What tests of several packages share; what takes long to import is imported where it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from speech_material import speech

if TYPE_CHECKING:
    import numpy as np
    from remote_material import Server

    from svtoolkit.corpora.synthetic.espeak import Synthesiser

__all__ = ["speech"]

TESTS = Path(__file__).parent

END_TO_END = {
    "training/test_launch.py": 120,
    "training/test_kill_and_resume.py": 90,
    "test_readme.py::test_the_commands_run_as_they_stand": 50,
    "recipes/test_voxceleb_recipe.py": 65,
    "recipes/test_mini_recipe.py": 50,
    "recipes/test_voxceleb_rehearsal.py": 20,
    "recipes/test_own_data.py": 15,
    "scripts/test_setup.py": 25,
    "commands/test_multirun.py": 15,
    "distributed/test_sharded_head_training.py": 15,
    "recipes/test_voxceleb_recipe_mistakes.py": 10,
    "scripts/test_test_and_ci.py": 10,
    "distributed/test_sharded_head.py": 10,
    "distributed/test_memory_of_devices.py": 10,
    "distributed/test_equal_updates.py": 8,
    "reversible/test_chain_distributed.py": 8,
    "test_wheel.py": 8,
    "test_other_systems.py": 8,
}
"""Tests of whole commands, recipes and groups of processes -> seconds that they take on a free core."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is end to end, and begin with it, the longest first: no worker works on when the others have ended."""
    missing = [name for name in END_TO_END if not (TESTS / name.partition("::")[0]).is_file()]
    if missing:
        raise pytest.UsageError(f"tests/conftest.py: END_TO_END names {', '.join(missing)}, which is not there")
    seconds = {}
    for item in items:
        file = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        seconds[item] = END_TO_END.get(file) or END_TO_END.get(f"{file}::{item.name}", 0)
        if seconds[item]:
            item.add_marker(pytest.mark.end_to_end)
    items.sort(key=lambda item: -seconds[item])


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
            for package in ("wespeaker", "wespeaker.frontend", "wespeaker.models", "wespeaker.utils"):
                stand_in = ModuleType(package)
                stand_in.__path__ = [str(folder.joinpath(*package.split(".")[1:]))]
                sys.modules[package] = stand_in
            return importlib.import_module(f"wespeaker.{name}")
        finally:
            for module in set(sys.modules) - before:
                if module.partition(".")[0] == "wespeaker":
                    del sys.modules[module]

    return load


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this test run that all its workers share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def own_cache(shared_folder: Path) -> None:
    """What is predicted is kept in a folder of this test run."""
    os.environ["SVT_CACHE"] = str(shared_folder / "cache")


@pytest.fixture(scope="session")
def warm_svt(shared_folder: Path) -> Path:
    """A program `svt` that starts at once."""
    from warm_svt import start

    return start(shared_folder)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of samples of every call by which soundfile has decoded some."""
    import soundfile

    counts: list[int] = []

    class Counting(soundfile.SoundFile):
        def read(self, *args: Any, **kwargs: Any) -> np.ndarray:
            samples = super().read(*args, **kwargs)
            counts.append(len(samples))
            return samples

    monkeypatch.setattr(soundfile, "SoundFile", Counting)
    return counts


@pytest.fixture
def server() -> Iterator[Server]:
    from remote_material import Server

    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays between attempts, which nobody waits for."""
    from svtoolkit.audio.shards import remote_cache

    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(remote_cache, "time", clock)
    return waited


@pytest.fixture(scope="module")
def synthesiser() -> Iterator[Synthesiser]:
    from svtoolkit.corpora.synthetic.espeak import open_synthesiser

    with open_synthesiser() as opened:
        yield opened


@pytest.fixture(scope="session")
def finished(speech: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """exp_dir of the tiny run as it is, finished; not to be changed."""
    from tiny_runs import tiny_config

    from svtoolkit.training.experiment import train

    exp_dir = tmp_path_factory.mktemp("finished") / "exp"
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)  # as the command line sets it
    try:
        assert train(tiny_config(speech, exp_dir)) is None
    finally:
        root.setLevel(level)
    return exp_dir
