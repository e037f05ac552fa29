"""Profiles are divided among processes, which find what one alone does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from svtoolkit.config import CheckpointConfig, MemoryPredictionConfig, MemoryStrategyConfig, ResNetConfig, SGDConfig
from svtoolkit.planning import profiles
from svtoolkit.planning.profiles import Profiles, profile_or_recall

QUESTION = MemoryPredictionConfig(
    frames=24, num_bins=16, num_classes=50, device="cpu", model=ResNetConfig("resnet10", base_width=8)
)
MEMORIES = [MemoryStrategyConfig("store"), CheckpointConfig("checkpoint")]


def profiled(monkeypatch: pytest.MonkeyPatch, cache: Path, cores: int) -> Profiles:
    monkeypatch.setenv("SVT_CACHE", str(cache))
    monkeypatch.setattr(profiles, "count_cores", lambda: cores)
    return profile_or_recall(QUESTION, MEMORIES, ("fp32", "fp16"), [SGDConfig()])


def fail_in_forks(monkeypatch: pytest.MonkeyPatch, message: str) -> list[str]:
    """The precisions that this process profiles itself, as it does so."""
    own, whole, done = os.getpid(), profiles._profile_step, []

    def profile_step(profiler, memory, bits):
        if os.getpid() != own:
            raise RuntimeError(message)
        done.append(bits)
        return whole(profiler, memory, bits)

    monkeypatch.setattr(profiles, "_profile_step", profile_step)
    return done


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_where_autograd_has_threads_this_process_does_it_all(tmp_path, monkeypatch):
    expected = profiled(monkeypatch, tmp_path / "one", 1)
    message = "Unable to handle autograd's threading in combination with fork-based multiprocessing."
    done = fail_in_forks(monkeypatch, message)
    found = profiled(monkeypatch, tmp_path / "two", 2)
    assert len(done) == 4
    for memory in MEMORIES:
        for precision in ("fp32", "fp16"):
            assert found.step(memory, precision) == expected.step(memory, precision)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_other_errors_of_a_fork_are_said(tmp_path, monkeypatch):
    fail_in_forks(monkeypatch, "something else")
    with pytest.raises(RuntimeError, match="something else"):
        profiled(monkeypatch, tmp_path, 2)
