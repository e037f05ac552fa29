"""The memory benchmark on the CPU: a tiny selection end to end, the summary, time."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import SHARED

from benchmarks import memory, memory_ledger, step_time, training_step
from benchmarks.memory_summary import format_tables, summarise
from benchmarks.published import PUBLISHED, optimizer_of
from benchmarks.training_step import CHECKPOINT, REVERSIBLE, STORE, build_network, checkpoint_blocks, strategies_of
from svtoolkit.config import MemoryPredictionConfig, MemoryStrategyConfig, ModelConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.memory_prediction import predict_memory

torch.set_num_threads(1)


# ---- the tables of the paper ----


def test_the_published_figures_are_those_of_the_paper() -> None:
    path = SHARED / "spec" / "paper_results.csv"
    if not path.is_file():
        pytest.skip("../shared/spec/paper_results.csv is not there to compare with")
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    stored = ""
    seen = set()
    for row in rows:
        name = row["system"].lower().replace("-", "_")
        ours = PUBLISHED[name]
        gb, batch = float(row["memory_gb_per_utt"]), int(row["max_batch_11gb"])
        if row["optimizer"].endswith("8bit"):
            assert (ours.eight_bit_gb, ours.eight_bit_batch) == (gb, batch)
            continue
        stored = stored if row["reversible_type"] else name
        assert (ours.gb, ours.batch) == (gb, batch)
        assert ours.peer == (stored if row["reversible_type"] else None)
        assert optimizer_of(name) == row["optimizer"].lower()
        seen.add(name)
    assert seen == set(PUBLISHED)


def test_every_reversible_network_has_a_target_and_no_other() -> None:
    for name, published in PUBLISHED.items():
        assert (published.target is not None) == training_step.is_reversible(name) == (published.peer is not None)
        assert published.stricter_target is None or published.stricter_target < published.target
        assert strategies_of(name) == (STORE, CHECKPOINT, REVERSIBLE)[: 2 + (published.peer is not None)]


# ---- the step ----


def gradients(network: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    network.zero_grad()
    network(x).square().mean().backward()
    return [p.grad.clone() for p in network.parameters() if p.grad is not None]


@pytest.mark.parametrize(("name", "blocks"), [("resnet10", 4), ("revnet_tiny", 3 + 1 + 2 + 3 + 1 + 1)])
def test_checkpointed_blocks_give_the_gradients_of_stored_ones(name: str, blocks: int) -> None:
    network, x = build_network(name, STORE), torch.randn(2, 16, 80)
    assert len(list(network.blocks())) == blocks
    expected = gradients(network, x)
    calls = []
    checkpoint_blocks(network)
    for block in network.blocks():
        block.register_forward_hook(lambda *_: calls.append(1))
    found = gradients(network, x)
    assert len(calls) == blocks
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("name", "strategy"), [("resnet10", STORE), ("revnet_tiny", REVERSIBLE)])
def test_the_step_needs_what_svt_memory_predicts(name: str, strategy: str) -> None:
    report = memory_ledger._step_report(name, strategy, "sgd", 1)
    config = MemoryPredictionConfig(
        batch_size=1, device="cpu", model=ModelConfig(name), memory=MemoryStrategyConfig(strategy)
    )
    expected = predict_memory(config, growth=False).whole
    assert (report.phase_peaks, report.at_peak) == (expected.phase_peaks, expected.at_peak)


def test_a_step_of_every_precision_changes_the_weights() -> None:
    for precision in ("fp32", "bf16", "fp16"):
        step = training_step.TrainingStep("resnet10", STORE, batch_size=2, frames=16, classes=5, precision=precision)
        step.scaler = torch.amp.GradScaler("cpu", init_scale=2.0, enabled=precision == "fp16")
        before = step.head.weight.detach().clone()
        step()
        assert torch.isfinite(step.head.weight).all()
        assert not torch.equal(step.head.weight, before)


# ---- end to end on the CPU ----


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the benchmark writes of two tiny networks, in two calls."""
    path = tmp_path_factory.mktemp("memory") / "results" / "memory.json"
    with pytest.MonkeyPatch.context() as patch:
        tiny = NETWORKS.rows["revnet_tiny"]
        fewer = replace(tiny, arguments=tiny.arguments | {"blocks": (1, 1, 1, 1)})
        patch.setitem(NETWORKS.rows, "revnet_tiny", fewer)
        patch.setattr(memory_ledger, "BREAKDOWNS", {"resnet10": [(STORE, "sgd", memory_ledger.LARGE_BATCH)]})
        patch.setattr(memory_ledger, "UTTERANCES", memory_ledger.LARGE_BATCH)  # fake tensors of a size are made once
        base = ["--output", str(path), "--rounds", "1", "--frames", "16"]
        assert memory.main([*base, "--networks", "revnet_tiny", "--parts", "ledger,timeline,step_time"]) == 0
        assert memory.main([*base, "--networks", "resnet10"]) == 0
    return path


def test_two_calls_make_one_document(measured: Path) -> None:
    document = json.loads(measured.read_text(encoding="utf-8"))
    assert {part: list(records) for part, records in document["parts"].items()} == {
        "ledger": ["revnet_tiny", "resnet10"],
        "timeline": ["revnet_tiny"],
        "step_time": ["revnet_tiny", "resnet10"],
        "breakdown": ["resnet10"],
        "largest_batch": ["resnet10"],
    }
    assert [run["command"].split()[:3] for run in document["runs"]] == [["python", "-m", "benchmarks.memory"]] * 2
    assert document["parts"]["ledger"]["revnet_tiny"]["run"] == 0
    assert document["parts"]["ledger"]["resnet10"]["run"] == 1
    assert len(document["parts"]["ledger"]["resnet10"]["load_average"]) == 2


def test_figures_of_the_ledger(measured: Path) -> None:
    parts = json.loads(measured.read_text(encoding="utf-8"))["parts"]
    gib = parts["ledger"]["revnet_tiny"]["gib_per_utterance"]
    assert 0 < gib[REVERSIBLE] < gib[CHECKPOINT] < gib[STORE]
    assert parts["ledger"]["resnet10"]["parameters"] == sum(
        p.numel() for p in build_network("resnet10", STORE).parameters()
    )
    (row,) = parts["breakdown"]["resnet10"]["rows"]
    assert sum(row["at_peak"].values()) == row["peak_bytes"]
    # weights of network and head, and as much momentum
    assert row["at_peak"]["optimizer_state"] == row["at_peak"]["weights"] > 4 * 256 * memory_ledger.CLASSES
    live = parts["timeline"]["revnet_tiny"]["live_mib"]
    assert max(live[STORE]["backward"]) > 2 * max(live[REVERSIBLE]["backward"])


def test_the_largest_batch_fits_and_one_more_does_not(measured: Path) -> None:
    record = json.loads(measured.read_text(encoding="utf-8"))["parts"]["largest_batch"]["resnet10"]
    assert record["largest_batch"].keys() == {"store, sgd", "checkpoint, sgd"}
    found = record["largest_batch"]["store, sgd"]
    budget = record["budget_gib"] * memory_ledger.GIB
    peaks = [memory_ledger._step_report("resnet10", STORE, "sgd", size).peak_bytes for size in (found, found + 2)]
    assert peaks[0] <= budget * 1.001
    assert peaks[1] > budget * 0.999


def test_what_the_file_holds_is_left_out(measured: Path, capsys: Any) -> None:
    rows = json.loads(measured.read_text(encoding="utf-8"))["summary"]["rows"]
    assert [row["network"] for row in rows] == ["resnet10", "revnet_tiny"]
    assert all(row["step_time_ratio_fastest"] > 0 for row in rows)
    words = ["--output", str(measured), "--networks", "resnet10", "--parts", "ledger", "--only-missing"]
    assert memory.main(words) == 0
    printed = capsys.readouterr()
    assert "GiB per utterance, by the ledger" in printed.out
    assert "ledger: resnet10" not in printed.err


def test_nothing_new_is_begun_after_the_time_is_over(tmp_path: Path, capsys: Any) -> None:
    words = ["--output", str(tmp_path / "m.json"), "--networks", "resnet10,resnet18", "--parts", "ledger"]
    assert memory.main([*words, "--seconds", "-1"]) == 0
    assert "-1 s are over: 2 of 2 left to --only-missing" in capsys.readouterr().out
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--parts", "ledgre"], "--parts: there is no part 'ledgre'; expected ledger, breakdown,"),
        (["--networks", "resnet10,resnet"], "--networks: there is no network 'resnet'"),
    ],
)
def test_what_is_asked_for_must_be_there(tmp_path: Path, capsys: Any, words: list[str], sentence: str) -> None:
    assert memory.main(["--output", str(tmp_path / "m.json"), *words]) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("content", ["no json", "[1]", '{"runs": []}'])
def test_a_file_of_something_else_is_not_touched(tmp_path: Path, capsys: Any, content: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(content)
    assert memory.main(["--output", str(path), "--networks", "resnet10"]) == 1
    assert "is not what this benchmark wrote; choose another --output" in capsys.readouterr().err
    assert path.read_text() == content


# ---- the summary ----


def ledger_of(**reversible: float) -> dict[str, Any]:
    return {
        name: {"parameters": 1, "gib_per_utterance": {STORE: 0.07, REVERSIBLE: gib}} for name, gib in reversible.items()
    }


def test_bars_ratios_and_depth() -> None:
    records = {"ledger": ledger_of(revnet57=0.0100, revnet137=0.0101, revnet197=0.0126)}
    records["ledger"]["resnet34"] = {"parameters": 2, "gib_per_utterance": {STORE: 0.056}}
    summary = summarise(records)
    rows = {row["network"]: row for row in summary["rows"]}
    assert list(rows) == ["resnet34", "revnet57", "revnet137", "revnet197"]
    assert rows["revnet57"]["times_less_than_peer"] == 5.6
    assert rows["revnet57"]["published_times_less_than_peer"] == 2.0
    assert rows["revnet137"]["times_less_than_peer"] is None  # ResNet101 was not measured
    assert [rows[name]["target_met"] for name in rows] == [None, True, True, False]
    assert summary["free_depth"]["spread"] == pytest.approx(0.26)
    assert summary["free_depth"]["met"] is False
    printed = format_tables(records, summary)
    assert "0.0125 MISSED" in printed
    assert "depth is NOT free: revnet57, revnet137, revnet197 differ by 26.00 %" in printed
    assert summarise({"ledger": ledger_of(revnet57=0.01)})["free_depth"] is None


def test_the_target_of_time() -> None:
    def timed(ratio: float) -> dict[str, Any]:
        slower = {"fastest_s": ratio, "ratio_fastest": ratio, "ratio_median": ratio, "ratio_processor": 1.3}
        return {"strategies": {STORE: {"fastest_s": 1.0, "median_s": 1.0}, REVERSIBLE: slower}}

    records = {"step_time": {"revnet57": timed(1.39), "revnet46": timed(1.41)}}
    summary = summarise(records)
    assert {row["network"]: row["step_time_target_met"] for row in summary["rows"]} == {
        "revnet57": True,
        "revnet46": False,
    }
    printed = format_tables(records, summary)
    assert "| revnet57 | 1.000 | reversible 1.390 | 1.39 | 1.39 | 1.30 | met |" in printed
    assert "| revnet46 | 1.000 | reversible 1.410 | 1.41 | 1.41 | 1.30 | MISSED |" in printed


# ---- time ----


def test_variants_run_in_turns_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0.0], []
    costs = {"a": iter([9.0, 1.0, 2.0, 6.0]), "b": iter([9.0, 4.0, 2.0, 3.0])}

    def run(name: str) -> None:
        order.append(name)
        clock[0] += next(costs[name])

    monkeypatch.setattr(step_time.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(step_time.time, "process_time", lambda: clock[0] / 4)
    waits = []
    timings = step_time.time_in_turns({name: lambda name=name: run(name) for name in "ab"}, 3, lambda: waits.append(1))
    assert "".join(order) == "ab" + "ba" + "ab" + "ba"
    assert len(waits) == 2 * len(order)
    assert (timings["a"], timings["b"]) == (
        step_time.Timing(1.0, 2.0, 0.25),
        step_time.Timing(2.0, 3.0, 0.5),
    )
    assert step_time.compare_times(timings, "a")["b"] == {
        "fastest_s": 2.0,
        "median_s": 3.0,
        "processor_s": 0.5,
        "ratio_fastest": 2.0,
        "ratio_median": 1.5,
        "ratio_processor": 2.0,
    }
    with pytest.raises(ValueError, match="found 0 rounds, expected 1 or more"):
        step_time.time_in_turns({}, 0)
