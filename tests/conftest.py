"""What tests of several packages share; what takes long to import is imported where it is asked for."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from speech_material import speech

if TYPE_CHECKING:
    import numpy as np
    from hub_material import Hub
    from remote_material import Server

    from svtoolkit.corpora.synthetic.espeak import Synthesiser

__all__ = ["speech"]

TESTS = Path(__file__).parent

END_TO_END = {
    "recipes/test_voxceleb_recipe.py": 38,
    "training/test_launch.py": 30,
    "models/test_revnet.py": 27,
    "deploy/test_graph.py": 24,
    "recipes/test_mini_recipe.py": 23,
    "recipes/test_small_recipe.py": 23,
    "planning/test_memory_prediction.py": 23,
    "training/test_kill_and_resume.py": 22,
    "benchmarks/test_memory_benchmark.py": 20,
    "recipes/test_voxceleb_rehearsal.py": 19,
    "recipes/test_voxceleb_recipe_mistakes.py": 18,
    "test_readme.py::test_the_commands_run_as_they_stand": 17,
    "crops/test_feature_crop.py": 17,
    "scripts/test_setup.py": 14,
    "distributed/test_sharded_head_training.py": 13,
    "training/test_loop.py": 13,
    "planning/test_model_survey.py": 13,
    "audio/shards/test_remote_failures.py": 12,
    "training/test_hybrid_training.py": 12,
    "memory/test_measurement.py": 11,
    "test_plugin_package.py": 11,
    "benchmarks/test_loader_benchmark.py": 11,
    "distributed/test_memory_of_devices.py": 10,
    "commands/test_multirun.py": 10,
    "training/test_memory_choice.py": 10,
    "test_nothing_hangs.py": 9,
    "reversible/test_chain.py": 9,
    "optim/test_eight_bit_training.py": 9,
    "training/test_experiments_page.py": 9,
    "commands/test_plan_command.py": 9,
    "reversible/test_chain_autograd.py": 8,
    "reversible/test_chain_distributed.py": 8,
    "benchmarks/test_gpu_benchmark.py": 7,
    "training/test_fitting.py": 7,
    "memory/test_ledger_oracle.py": 7,
    "commands/test_natural_mistakes.py": 7,
    "test_python_interface.py": 7,
    "recipes/test_own_data.py": 7,
    "reporting/test_foreign_results.py": 7,
    "models/test_revnext.py": 7,
    "planning/test_memory_layout.py": 6,
    "serving/test_openapi.py": 4,
    "serving/test_serve_process.py": 7,
    "serving/test_page_in_browser.py": 6,
    "checkpoints/test_wespeaker.py": 6,
    "crops/test_sharded_data.py": 6,
    "training/test_experiment.py": 6,
    "reporting/test_report.py": 6,
    "commands/test_memory_command.py": 6,
    "memory/planner/test_surroundings.py": 6,
    "benchmarks/test_inference_benchmarks.py": 6,
    "benchmarks/test_serving_benchmark.py": 5,
    "reporting/test_report_figures.py": 5,
    "data/sharding/test_shard_refusals.py": 5,
    "training/test_bad_utterances.py": 5,
    "commands/test_crossval_command.py": 6,
    "commands/test_embed.py": 5,
    "runs/test_exp_dir.py": 5,
    "scripts/test_test_and_ci.py": 5,
    "training/test_two_stages.py": 15,
    "training/test_weight_average.py": 15,
    "optim/test_muon.py": 8,
    "planning/test_micro_batch.py": 4,
    "training/test_distillation.py": 4,
    "commands/test_compress.py": 3,
    "data/sharding/test_shard_resume.py": 4,
    "distributed/test_equal_updates.py": 4,
    "training/test_initialisation.py": 4,
    "training/test_warps.py": 4,
    "training/test_pairwise_training.py": 4,
    "data/test_conversion_interrupted.py": 4,
    "test_wheel.py": 4,
    "training/test_dry_run.py": 3,
    "checkpoints/test_full_size_parity.py": 3,
    "commands/test_report_command.py": 3,
    "distributed/test_sharded_head.py": 2,
    "planning/test_network_facts.py": 2,
    "test_other_systems.py": 1,
}
"""Tests of recipes, runs, groups of processes and networks of full size -> seconds that they take on two free cores."""


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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nobody looks for garbage in what is imported and collected, then or ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def wespeaker() -> Callable[[str], ModuleType]:
    """Imports one module of WeSpeaker without running the package's __init__, which needs much that is not there."""
    found = importlib.util.find_spec("wespeaker")
    if found is None or found.origin is None:
        pytest.skip("WeSpeaker is not installed: scripts/setup.sh --extras dev")
    folder = Path(found.origin).parent

    @cache
    def load(name: str) -> ModuleType:
        before = set(sys.modules)
        try:
            for package in ("wespeaker", "wespeaker.models", "wespeaker.utils", "wespeaker.frontend"):
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
def own_folder(shared_folder: Path) -> None:
    """What is predicted is kept in a folder of this test run, and processes are forked from one of this run."""
    from warm_svt import FOLDER

    os.environ["SVT_CACHE"] = str(shared_folder / "cache")
    os.environ[FOLDER] = str(shared_folder)


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
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty stand-in of the hub, and an empty cache."""
    from hub_material import point_at, running_hub

    with running_hub() as running:
        point_at(running, tmp_path / "cache", monkeypatch)
        yield running


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays between attempts, which nobody waits for."""
    from svtoolkit.audio.shards import remote_cache

    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(remote_cache, "time", clock)
    return waited


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are forked from one that has imported what they need, where they would be spawned."""
    from svtoolkit.system import processes

    def get_context(method: str) -> Any:
        from forked_workers import context

        return context()

    monkeypatch.setattr(processes, "multiprocessing", SimpleNamespace(get_context=get_context))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures of a report are one empty drawing: for tests of what stands beside them."""
    from matplotlib.figure import Figure

    from svtoolkit.reporting import canvas

    drawing = canvas.svg_text(Figure())
    monkeypatch.setattr(canvas, "svg_text", lambda figure: drawing)
    monkeypatch.setattr(canvas, "png_bytes", lambda figure: b"")


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
