"""What waits for a GPU: every part runs through on a CPU, and what CUDA alone has is stood in for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from benchmarks.gpu import (
    __main__ as driver,
)
from benchmarks.gpu import (
    allocator,
    batches,
    equality,
    extraction,
    machine,
    memory,
    offload,
    optimizers,
    predictions,
    records,
    replicas,
    steps,
    subjects,
    summary,
)
from benchmarks.gpu.parts import PARTS, LeftOutError, Settings
from svtoolkit.config import ModelConfig
from svtoolkit.distributed.world import ALONE
from svtoolkit.errors import UserError
from svtoolkit.models.registry import NETWORKS
from svtoolkit.registry import Row

torch.set_num_threads(1)

CPU = torch.device("cpu")
TINY = Settings(CPU, tiny=True)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> str:
    """A reversible network with one coupling a stage is all there is."""
    arguments = {"kind": "II", "block": "basic", "channels": (8, 8, 16, 16), "blocks": (1, 1, 1, 1)}
    row = Row("svtoolkit.models.revnet:build_revnet", ModelConfig, arguments | {"stem_stride": (4, 1)}, "RevNet")
    monkeypatch.setitem(NETWORKS.rows, "revnet_small", row)
    monkeypatch.setattr(subjects, "TINY_NETWORKS", ("revnet_small",))
    for module in (allocator, subjects):
        monkeypatch.setattr(module.gc, "collect", lambda: 0)  # takes longer than all the rest
    return "revnet_small"


def first(part: Any, count: int = 1, *words: str) -> dict[str, dict[str, Any]]:
    """Some items of a part that have these words in their keys, measured."""
    chosen = ((key, run) for key, run in part.items(TINY) if all(word in key for word in words))
    return {key: records.attempt(run) for key, run in (next(chosen) for _ in range(count))}


# ---- the parts ----


def test_memory_and_steps_of_every_strategy(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PRECISIONS", ("fp16",))
    monkeypatch.setattr(steps, "PRECISIONS", ("bf16",))
    found = {key: records.attempt(run) for key, run in memory.items(TINY)}
    assert found.pop("context") == {"first_tensor_bytes": None, "first_convolution_bytes": None}
    assert list(found) == [f"revnet_small, {name}, fp16, 16" for name in subjects.strategies()]
    for key, record in found.items():
        assert ("left_out" in record) == any(name in key for name in ("checkpoint", "hybrid", "stash8")), record
        assert record.get("allocated_bytes") is None
    timed = first(steps, 3)
    assert list(timed) == [
        f"revnet_small, {name}, bf16, channels_last, deterministic" for name in ("reversible", "hybrid", "store")
    ]
    assert "left_out" in timed.pop("revnet_small, hybrid, bf16, channels_last, deterministic")
    assert all(record["median_s"] >= record["fastest_s"] > 0 and record["batch"] == 2 for record in timed.values())
    keys = [key for key, _ in steps.items(TINY)]
    assert len(keys) == len(set(keys)) == 4 * len(subjects.strategies())


def test_gradients_are_compared_under_all_switches(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn, seen = torch.backends.cudnn, set()
    before = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32)
    taken = equality.gradients

    def watched(*words: Any) -> Any:
        seen.add((cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32))
        return taken(*words)

    monkeypatch.setattr(equality, "gradients", watched)
    found = equality.compare(small, "reversible", "fp32", TINY)
    assert (found["settings"], found["equal"], found["stored_repeats_itself"]) == (16, 16, 16)
    assert len(seen) == 8
    assert (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32) == before
    keys = [key for key, _ in equality.items(Settings(CPU))]
    assert keys[:3] == ["revnet57, reversible, fp32", "revnet57, reversible, fp16", "revnet57, reversible, bf16"]
    assert "resnet34, checkpoint, fp32" in keys


def test_gradients_that_differ_are_seen(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = equality.apply_strategy
    monkeypatch.setattr(equality, "apply_strategy", lambda network, **how: plain(network, **how | {"exact": False}))
    monkeypatch.setattr(equality, "SWITCHES", ("deterministic",))
    found = equality.compare(small, "reversible", "fp32", TINY)
    assert (found["settings"], found["equal"], found["stored_repeats_itself"]) == (4, 0, 4)
    assert all(0 < row["relative_difference"] < 1e-2 for row in found["rows"])


def test_offload_in_all_its_cases(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in offload.CASES:
        found = offload.repeat(small, case, TINY)
        assert (found["right"], found["steps"]) == (1, 1), case
        assert (found["largest_difference"] > 0) == (case == "half precision")

    def wrong(network: Any, data: Any, settings: Settings) -> Any:
        return [[2 * g for g in gradients] for gradients in offload.as_it_is(network, data, settings)]

    monkeypatch.setitem(offload.CASES, "wrong", wrong)
    assert offload.repeat(small, "wrong", TINY)["right"] == 0


def test_optimizers(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = first(optimizers, 3, "sgd", "channels_last")
    assert list(found) == [f"sgd, {name}, channels_last" for name in ("32 bits", "torch, 2048", "torch, 256")]
    assert [record["distance_by_way"] > 0 for record in found.values()] == [False, True, True]
    assert all(record["layout_kept"] and record["fastest_s"] > 0 for record in found.values())
    assert found["sgd, 32 bits, channels_last"]["bytes_per_parameter"] == 4
    monkeypatch.setattr(optimizers, "find_spec", lambda name: None)
    missing = records.attempt(lambda: optimizers.measure("sgd", optimizers.THEIRS, True, TINY))
    assert missing == {"left_out": optimizers.NO_BITSANDBYTES}
    begin, one, other = ([torch.full((2,), value)] for value in (0.0, 4.0, 5.0))
    assert optimizers.distance_by_way(begin, one, other) == 0.25


def test_extraction_machine_and_loader(small: str) -> None:
    (speed,) = first(extraction).values()
    assert speed["audio_seconds_per_second"] == pytest.approx(4 / speed["median_s"], rel=0.01)
    found = {key: records.attempt(run) for key, run in machine.items(TINY)}
    assert all(records.ERROR not in record for record in found.values())
    assert found["copy on the device"]["bytes_per_second"] > 0
    assert found["convolution of 32 channels, fp16"]["flops_per_second"] > 0


def test_the_loader(small: str) -> None:
    from benchmarks.gpu import loader

    found = {key: records.attempt(run) for key, run in loader.items(TINY)}
    assert list(found) == [
        "copy", "filter bank", "augmentation", "all of them",
        "0 workers, augmented on the device", "0 workers, augmented in the workers",
    ]  # fmt: skip
    assert all(record["crops_per_second"] > 0 for record in found.values())


def test_replicas(small: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert set(first(replicas, 2)["all-reduce of 64 MiB"]) == {"left_out"}
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert replicas.measure("reduction", "", "", TINY, ALONE)["bytes_per_second"] > 0
        assert replicas.measure(small, "reversible", "fp32", TINY, ALONE)["times_alone"] > 0
    finally:
        torch.distributed.destroy_process_group()


# ---- what CUDA alone has ----


class StandIn:
    """A GPU whose allocator needs a fixed sum and so much an utterance; tensors are on the CPU."""

    total = 80 * 2**30

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cap, self.caps, self.peak = float(self.total), [], 0
        patch.setattr(allocator.gc, "collect", lambda: 0)
        patch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=self.total))
        patch.setattr(torch.cuda, "set_per_process_memory_fraction", self.set_fraction)
        for name, value in (("max_memory_allocated", lambda device: self.peak), ("empty_cache", lambda: None)):
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: setattr(self, "peak", 0))
        for module in (allocator, batches):
            patch.setattr(module, "release", lambda device: None)
        patch.setattr(allocator, "synchronizer", lambda device: lambda: None)

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


@pytest.mark.parametrize("guess", [None, 90, 140])
def test_the_largest_batch_under_a_cap(gpu: StandIn, monkeypatch: pytest.MonkeyPatch, guess: int | None) -> None:
    class Step:
        def __init__(self, *_: Any, batch_size: int, **__: Any) -> None:
            self.size, self.steps = batch_size * 10**8, 0

        def __call__(self) -> None:
            gpu.allocate(self.size + self.steps * 4 * 10**8)
            self.steps = 1

    monkeypatch.setattr(batches, "build_step", Step)
    line = None if guess is None else SimpleNamespace(largest_batch=lambda budget: guess)
    monkeypatch.setattr(batches, "line_of", lambda *words: line)
    found = batches.largest_under("any", "store", "sgd", "fp32", 11, Settings(torch.device("cuda", 0)))
    assert found == {"largest_batch": (11 * 2**30 - 4 * 10**8) // 10**8, "predicted": guess}
    assert gpu.caps == [11 / 80, 1.0]
    with pytest.raises(LeftOutError, match="less than 100 GiB"):
        batches.largest_under("any", "store", "sgd", "fp32", 100, Settings(torch.device("cuda", 0)))


def test_the_cap_is_lifted_after_an_error_and_only_a_lack_of_memory_is_taken_for_one(gpu: StandIn) -> None:
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(RuntimeError, match="a bug"), allocator.capped(8 * 2**30, CPU):
        allocator.runs(lambda: fail(RuntimeError("a bug")), CPU)
    assert gpu.caps == [0.1, 1.0]
    assert allocator.runs(lambda: fail(torch.OutOfMemoryError()), CPU) is False
    assert allocator.runs(lambda: None, CPU) is True


@given(limit=st.integers(0, 3000), guess=st.integers(0, 400))
def test_bisection_finds_the_limit_from_any_guess(limit: int, guess: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    assert allocator.largest_batch(fits, guess) == limit
    assert len(tried) == len(set(tried)) <= 34
    assert min(tried) >= 1


# ---- predictions ----


def test_predictions_are_made_once_and_read_as_lines(
    small: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(predictions, "FRAMES", 16)
    monkeypatch.setattr(subjects, "FRAMES", 16)
    wanted = [predictions.Subject(small, strategy, "sgd", "fp32") for strategy in ("store", "checkpoint")]
    path = tmp_path / "predicted.json"
    predictions.predict_all(path, wanted)
    monkeypatch.setattr(predictions, "predict", lambda subject: pytest.fail("it is there"))
    predictions.predict_all(path, wanted)
    monkeypatch.setattr(predictions, "FILE", path)
    line = predictions.line_of(small, "store", "sgd", "fp32")
    peaks = json.loads(path.read_text())["lines"][f"{small}, store, sgd, fp32"]
    assert line.peak_of(predictions.PROBE) == pytest.approx(max(peaks["whole"].values()))
    assert predictions.line_of(small, "checkpoint", "sgd", "fp32") is None  # refused
    assert predictions.line_of("resnet34", "store", "sgd", "fp32") is None


# ---- files, deadlines, failures ----


def test_a_part_goes_on_after_failures_and_is_continued(tmp_path: Path) -> None:
    path, said, broken = tmp_path / "part.json", [], [True]

    def fail() -> dict[str, Any]:
        if broken[0]:
            raise RuntimeError("an illegal memory access")
        return {"value": 2}

    def refuse() -> None:
        raise UserError("memory=reversible needs a network with reversible stages")

    def lack() -> None:
        import a_package_that_is_not_there  # noqa: F401

    def starve() -> None:
        raise torch.OutOfMemoryError

    items = {"fails": fail, "refuses": refuse, "lacks": lack, "starves": starve, "last": lambda: 1.0}
    document = records.measure(iter(items.items()), path, CPU, 60, said.append)
    assert json.loads(path.read_text()) == document
    assert "illegal memory access" in document["records"]["fails"][records.ERROR]
    assert document["records"]["lacks"]["left_out"] == "a_package_that_is_not_there is not installed"
    assert document["records"]["starves"][records.TOO_LARGE] is True
    assert document["records"]["last"]["value"] == 1.0
    assert said[0].startswith("fails: FAILED, RuntimeError: an illegal memory access")
    broken[0], items["last"] = False, lambda: pytest.fail("it is there")
    document = records.measure(iter(items.items()), path, CPU, 60, said.append)
    assert document["records"]["fails"]["value"] == 2
    assert len(said) == 6


def test_nothing_is_begun_after_the_deadline_and_other_machines_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    path.write_text(json.dumps({"machine": {"device": "another"}, "left": [], "records": {"a": {"value": 7}}}))
    slow = {"a": lambda: time.sleep(0.02), "b": lambda: 1}
    document = records.measure(iter(slow.items()), path, CPU, 0.01, lambda line: None)
    assert document["left"] == ["b"]
    assert document["records"]["a"].keys() == {"value", "seconds"}
    assert document["machine"]["device"] == "cpu"
    path.write_text("cut of")
    assert records.read_document(path) == {}


# ---- the command ----


def test_parts_are_chosen_by_name_and_run() -> None:
    assert driver.chosen([], "") == list(PARTS)
    assert driver.chosen(["3", "memory"], "loader, machine") == ["memory", "optimizers", "extraction", "replicas"]
    with pytest.raises(ValueError, match="there is no part 'momery'; expected some of memory, batches"):
        driver.chosen(["momery"], "")
    for run in (1, 2, 3):
        ours = [part.seconds for part in PARTS.values() if part.run == run]
        assert sum(ours) + 12 * len(ours) <= 480, "eight minutes, with what it takes to start"


def test_one_part_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    calls = []

    def run(command: list[str], *, timeout: float, **_: Any) -> Any:
        calls.append((command[3], timeout))
        if command[3] == "steps":
            raise subprocess.TimeoutExpired(command, timeout)
        return SimpleNamespace(returncode=-9 if command[3] == "memory" else 0)

    monkeypatch.setattr(driver.subprocess, "run", run)
    assert driver.main(["memory", "equality", "steps", "--folder", str(tmp_path)]) == 1
    assert [name for name, _ in calls] == ["memory", "equality", "steps"]
    assert all(limit == PARTS[name].seconds + driver.GRACE_SECONDS for name, limit in calls)
    printed = capsys.readouterr().out
    assert "steps: stopped after" in printed
    assert printed.endswith("failed: memory, steps; see the JSON files\n")
    assert driver.main(["equality"]) == 0
    assert driver.main(["nothing"]) == 2


def test_a_part_in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    words = ["--here", "--tiny", "--device", "cpu", "--folder", str(tmp_path)]
    assert driver.main(["batches", *words]) == 0
    assert "batches: left out, it needs CUDA" in capsys.readouterr().out
    if not torch.cuda.is_available():
        assert driver.main(["batches", "--here", "--folder", str(tmp_path)]) == 1
        assert "batches: device is cuda, but torch" in capsys.readouterr().out
    assert driver.main(["replicas", *words]) == 0
    found = json.loads((tmp_path / "replicas.json").read_text())["records"]
    assert found["all-reduce of 64 MiB"]["left_out"] == "it needs two GPUs, and the device is a CPU"

    def broken(settings: Settings) -> Any:
        yield "a", lambda: 1 / 0

    monkeypatch.setattr(machine, "items", broken)
    assert driver.main(["machine", *words]) == 1
    assert "machine: a: FAILED, ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="a program for bash")
def test_the_shell_script_takes_any_python() -> None:
    def gpu_sh(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"SVT_PYTHON": sys.executable, "SKIP": "loader"}
        command = ["bash", str(ROOT / "benchmarks" / "gpu.sh"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    told = gpu_sh("--help")
    assert told.returncode == 0
    assert "steps       run 2, 420 s" in told.stdout
    assert gpu_sh("mistake").returncode == 2


# ---- the summary ----


def test_where_nothing_was_measured_it_says_so(tmp_path: Path) -> None:
    lines = summary.format_summary(tmp_path).splitlines()
    assert lines[0] == "measured on: unmeasured"
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == len(summary.DECISIONS)
    assert all(row.endswith("| unmeasured |") for row in rows)


def test_decisions(tmp_path: Path) -> None:
    def write(part: str, **found: Any) -> None:
        document = {"machine": {"device": "a GPU"}, "left": [], "records": found}
        (tmp_path / f"{part}.json").write_text(json.dumps(document))

    def seconds(value: float) -> dict[str, float]:
        return {"median_s": value}

    write(
        "steps",
        **{
            "resnet34, store, fp32, channels_last, deterministic": seconds(1.0),
            "resnet34, store, fp16, channels_last, deterministic": seconds(0.5),
            "resnet34, store, fp32, contiguous, deterministic": seconds(0.9),
            "resnet34, store, fp32, channels_last, free": seconds(0.8),
            "resnet34, checkpoint, fp32, channels_last, deterministic": seconds(1.3),
            "resnet34, reversible, fp32, channels_last, deterministic": {"left_out": "none"},
            "revnet57, store, fp32, channels_last, deterministic": {"error": "a line\nValueError: broken"},
        },
    )
    switches = {"tf32": False, "channels_last": True, "stored_repeats_itself": True}
    rows = [
        {**switches, "deterministic": True, "benchmark": False, "equal": True},
        {**switches, "deterministic": False, "benchmark": True, "equal": False},
    ]
    write("equality", **{"revnet57, reversible, fp32": {"rows": rows}})
    write("memory", a={"times_predicted": 1.1, "outside_bytes": 2**29, "reserved_bytes": 2**30,
                       "allocated_bytes": 2**29})  # fmt: skip
    write("optimizers", **{"sgd, 32 bits, channels_last": seconds(1.0), "sgd, torch, 256, channels_last": seconds(3.0)})
    write("machine", **{"convolution of 32 channels, fp32": {"flops_per_second": 5e12},
                        "copy to the device, pinned": {"bytes_per_second": 1e10}})  # fmt: skip
    write("offload", a={"steps": 6, "right": 6}, b={"steps": 6, "right": 5})
    text = summary.format_summary(tmp_path)
    for cell in (
        "| fp32 | fp16 store 2.00 → fp16 |",
        "| true | fp32 store 0.90 → false |",
        "| true | fp32 store 1.25; fp32 exact in 0 of 1 settings (stored repeats itself in 1) → true |",
        "| true | fp32 exact in 1 of 1 settings (stored repeats itself in 1) |",
        "| auto | resnet34 checkpoint 1.30 |",
        "| auto | sgd by torch, 256: 3.0 |",
        "| 1 | 1.100, 1.100, 1.100 of 1 steps |",
        "| 1 GiB | 1.00 GiB at most, median 1.00 |",
        "| 0 | 500 |",
        "| not measured | 11 of 12 steps right |",
        "steps: revnet57, store, fp32, channels_last, deterministic failed: ValueError: broken",
        "measured on: a GPU",
    ):
        assert cell in text, (cell, text)
