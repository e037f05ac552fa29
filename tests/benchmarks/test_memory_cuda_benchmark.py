"""The memory benchmark on a GPU, with stand-ins for the calls of torch.cuda and tensors on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import memory, memory_cuda, training_step
from benchmarks.training_step import CHECKPOINT, REVERSIBLE, STORE
from svtoolkit.config import ModelConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.registry import Row

torch.set_num_threads(1)

CPU = torch.device("cpu")


class StandIn:
    """A GPU whose allocator needs a fixed sum and so much an utterance; tensors are on the CPU."""

    total = 80 * 10**9

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cap, self.caps, self.peak, self.emptied = float(self.total), [], 0, 0
        patch.setattr(memory_cuda.gc, "collect", lambda: 0)  # takes longer than all the rest
        patch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=self.total))
        patch.setattr(torch.cuda, "set_per_process_memory_fraction", self.set_fraction)
        patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: setattr(self, "peak", 0))
        patch.setattr(torch.cuda, "max_memory_allocated", lambda device: self.peak)
        patch.setattr(torch.cuda, "empty_cache", lambda: setattr(self, "emptied", self.emptied + 1))

    def set_fraction(self, fraction: float, device: torch.device) -> None:
        self.caps.append(fraction)
        self.cap = fraction * self.total

    def allocate(self, size: int) -> None:
        if size > self.cap:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.peak = max(self.peak, size)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


@pytest.fixture
def small_revnet(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a reversible network with one coupling a stage."""
    arguments = {"kind": "II", "block": "basic", "channels": (8, 8, 16, 16), "blocks": (1, 1, 1, 1)}
    row = Row("svtoolkit.models.revnet:build_revnet", ModelConfig, arguments | {"stem_stride": (4, 1)}, "RevNet")
    monkeypatch.setitem(NETWORKS.rows, "revnet_small", row)
    return "revnet_small"


def test_the_peak_of_the_allocator_becomes_memory_per_utterance(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(network: torch.nn.Module, features: torch.Tensor, precision: str) -> Any:
        per_utterance = {"fp32": 3 * 2**28, "fp16": 2**28}[precision]
        if network.stages[0][0].forward.__class__.__name__ == "partial":  # checkpointed
            per_utterance = 8 * 10**9 if precision == "fp32" else 2**27
        return lambda: gpu.allocate(10**6 + per_utterance * len(features))

    monkeypatch.setattr(memory_cuda, "passes", passes)
    found = memory_cuda.memory_per_utterance("resnet10", CPU)
    assert found["gib_per_utterance"]["fp32"] == {STORE: pytest.approx(0.75), CHECKPOINT: None}  # 128 GB do not fit
    assert found["gib_per_utterance"]["fp16"] == {STORE: pytest.approx(0.25), CHECKPOINT: pytest.approx(0.125)}
    assert gpu.emptied >= 8


def test_the_largest_batch_under_a_cap(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    class Step:
        def __init__(self, name: str, strategy: str, *, batch_size: int, optimizer: str, precision: str, device: Any):
            self.size = batch_size * 10**8 // (2 if precision == "fp16" else 1) // (9 if strategy == REVERSIBLE else 1)
            self.steps = 0
            self.state = 10**8 if optimizer == "sgd_8bit" else 4 * 10**8

        def __call__(self) -> None:
            gpu.allocate(self.size + self.steps * self.state)
            self.steps = 1

    monkeypatch.setattr(memory_cuda, "TrainingStep", Step)
    found = memory_cuda.largest_batches("revnet_tiny", "sgd", 11e9, CPU)
    assert found["cap_bytes"] == 11 * 10**9
    assert found["largest_batch"]["fp32"] == {
        "store, sgd": 106, "store, sgd_8bit": 109, "checkpoint, sgd": 106, "checkpoint, sgd_8bit": 109,
        "reversible, sgd": 954, "reversible, sgd_8bit": 981,
    }  # fmt: skip
    assert found["largest_batch"]["fp16"]["store, sgd"] == 212
    assert gpu.caps == [11e9 / gpu.total, 1.0]


def test_the_cap_is_lifted_after_an_error(gpu: StandIn) -> None:
    with pytest.raises(RuntimeError, match="something else"), memory_cuda.capped(1e9, CPU):
        raise RuntimeError("something else")
    assert gpu.caps == [1e9 / gpu.total, 1.0]


def test_only_a_lack_of_memory_is_taken_for_one(gpu: StandIn) -> None:
    def fail(error: Exception) -> None:
        raise error

    assert memory_cuda.runs(lambda: fail(torch.OutOfMemoryError()), CPU) is False
    assert memory_cuda.runs(lambda: None, CPU) is True
    with pytest.raises(RuntimeError, match="a bug"):
        memory_cuda.runs(lambda: fail(RuntimeError("a bug")), CPU)


@given(limit=st.integers(0, 3000), guess=st.integers(0, 400))
def test_bisection_finds_the_limit_from_any_guess(limit: int, guess: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    assert memory_cuda.largest_batch(fits, guess) == limit
    assert len(tried) == len(set(tried)) <= 34
    assert min(tried) >= 1


def test_a_good_guess_costs_few_tries() -> None:
    tried: list[int] = []
    assert memory_cuda.largest_batch(lambda size: tried.append(size) or size <= 301, 300) == 301  # type: ignore[func-returns-value]
    assert len(tried) <= 6


def test_the_line_through_two_peaks_foretells_the_batch(gpu: StandIn) -> None:
    assert memory_cuda.predicted_batch(lambda size: gpu.allocate(10**9 + size * 10**8), 11e9, CPU) == 100
    assert memory_cuda.predicted_batch(lambda size: gpu.allocate(size * 10**11), 11e9, CPU) == 1
    assert memory_cuda.predicted_batch(lambda size: gpu.allocate(12 * 10**9 + size), 11e9, CPU) == 1


def test_time_by_precision_and_what_does_not_fit(
    gpu: StandIn, small_revnet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = memory_cuda.step_times(small_revnet, 1, CPU, batch_size=2, frames=16)
    for precision in ("fp32", "fp16"):
        assert found["by_precision"][precision]["strategies"].keys() == {STORE, CHECKPOINT, REVERSIBLE}
        assert found["by_precision"][precision]["strategies"][REVERSIBLE]["ratio_fastest"] > 0

    def too_large(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(memory_cuda, "compare_strategies", too_large)
    assert memory_cuda.step_times(small_revnet, 1, CPU)["by_precision"] == {"fp32": None, "fp16": None}


def test_gradients_are_equal_bit_for_bit_in_every_setting(small_revnet: str) -> None:
    before = (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32)
    rows = memory_cuda.bit_equality(small_revnet, CPU, frames=8, batch_size=2)["settings"]
    assert len({tuple(row[key] for key in ("precision", *memory_cuda.SWITCHES)) for row in rows}) == len(rows) == 32
    assert all(row["equal"] and row["stored_repeats_itself"] and row["relative_difference"] == 0 for row in rows)
    cudnn = torch.backends.cudnn
    assert (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32) == before


def test_gradients_that_differ_are_seen(small_revnet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without = training_step.set_strategy
    monkeypatch.setattr(memory_cuda, "set_strategy", lambda network, strategy: without(network, strategy, exact=False))
    monkeypatch.setattr(memory_cuda, "PRECISIONS", ("fp32",))
    rows = memory_cuda.bit_equality(small_revnet, CPU, frames=8, batch_size=2)["settings"]
    assert not any(row["equal"] for row in rows)
    assert all(0 < row["relative_difference"] < 1e-2 and row["stored_repeats_itself"] for row in rows)


def test_a_run_on_a_card_fills_its_columns(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {STORE: {"fastest_s": 1.0, "median_s": 1.0}, REVERSIBLE: {"fastest_s": 1.3, "ratio_fastest": 1.3}}
    settings = [{"equal": True, "stored_repeats_itself": True}, {"equal": False, "stored_repeats_itself": True}]
    records = {
        "memory_per_utterance": {"gib_per_utterance": {"fp32": {STORE: 0.061, REVERSIBLE: None}}},
        "largest_batches": {"largest_batch": {"fp32": {"store, sgd": 150}}},
        "step_times": {"by_precision": {"fp32": {"strategies": times}, "fp16": None}},
        "bit_equality": {"settings": settings},
    }
    for name, record in records.items():
        monkeypatch.setattr(memory_cuda, name, lambda *_, record=record, **__: record)
    monkeypatch.setattr(memory, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"gpu {device.index}")
    path = tmp_path / "m.json"
    assert memory.main(["--output", str(path), "--device", "cuda", "--networks", "revnet57,resnet34"]) == 0
    document = json.loads(path.read_text())
    assert document["runs"][0]["gpu"] == "gpu 2"
    assert list(document["parts"]["cuda_equality"]) == ["revnet57"]
    rows = {row["network"]: row for row in document["summary"]["rows"]}
    assert rows["revnet57"]["cuda_gradients_equal"] == {"settings": 2, "equal": 1, "stored_repeats_itself": 2}
    assert rows["resnet34"]["cuda_gradients_equal"] is None
    assert rows["resnet34"]["cuda_largest_batch"] == {"fp32": {"store, sgd": 150}}
    printed = capsys.readouterr().out
    assert "| revnet57, fp32 | store 0.0610, reversible – | store, sgd: 150 | reversible 1.30 | 1 of 2 |" in printed
    assert "| revnet57, fp16 | unmeasured | unmeasured | unmeasured | 1 of 2 |" in printed
