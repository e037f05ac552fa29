"""svt memory: the table, the data, and what it says where something cannot be."""

from __future__ import annotations

import json
import re

import pytest

from svtoolkit.cli import main
from svtoolkit.commands import memory as command
from svtoolkit.config import MemoryPredictionConfig
from svtoolkit.memory.step_report import KINDS, PHASES, AllocatorPeak, MemoryReport
from svtoolkit.planning.memory_prediction import StepMemory
from svtoolkit.system import progress

QUICK = ["memory", "model=resnet10", "frames=40", "num_classes=50", "batch_size=4"]
MIB, GIB = 2**20, 2**30


def step_memory(allocator: AllocatorPeak | None = None, *, single: bool = True) -> StepMemory:
    """2 GiB of activations for 9 utterances, 0.25 for one."""
    at_peak = dict.fromkeys(KINDS, 0) | {"weights": 128 * MIB, "activations": 2 * GIB, "other": 64 * MIB}
    highest = at_peak | {"gradients": 128 * MIB}
    peaks = {"forward": 2 * GIB, "backward": sum(at_peak.values()), "optimizer": 384 * MIB}
    whole = MemoryReport(peaks["backward"], "backward", at_peak, highest, 2 * GIB, peaks, [], allocator)
    one = MemoryReport(
        0, "backward", at_peak, highest, 0, dict.fromkeys(PHASES, 448 * MIB) | {"backward": 448 * MIB}, []
    )
    return StepMemory(9, "store", whole, one if single else None)


def shown(monkeypatch, capsys, memory: StepMemory, **changes) -> str:
    monkeypatch.setattr(command, "predict_or_recall", lambda config, progress: memory)
    assert command.run(MemoryPredictionConfig(batch_size=9, **changes), "svt memory") == 0
    return capsys.readouterr().out


def test_the_table(monkeypatch, capsys):
    assert shown(monkeypatch, capsys, step_memory()).splitlines() == [
        "resnet34, store activations, fp32, loss=aam over 17982 classes, optim=sgd: a step on 9 x 200 frames of 80 "
        "bins, predicted",
        "",
        "MiB               at the peak    share      highest",
        "weights                 128.0    5.7 %        128.0",
        "gradients                 0.0    0.0 %        128.0",
        "optimizer state           0.0    0.0 %          0.0",
        "activations            2048.0   91.4 %       2048.0",
        "transients                0.0    0.0 %          0.0",
        "other                    64.0    2.9 %         64.0",
        "peak                   2240.0  100.0 %   in the backward pass",
        "",
        "0.2188 GiB an utterance; in 11 GiB the largest batch is 49",
        "not counted: the device's context, cuDNN's workspace, gaps of the allocator, waveforms and filter bank",
    ]


def test_a_budget_that_nothing_fits_in(monkeypatch, capsys):
    assert "; in 0.25 GiB not even one utterance fits\n" in shown(monkeypatch, capsys, step_memory(), budget_gib=0.25)


def test_one_utterance(monkeypatch, capsys):
    out = shown(monkeypatch, capsys, step_memory(single=False))
    assert out.endswith(
        "\nwhat an utterance takes and what batch fits is the difference of two batches: give batch_size=2 or more\n"
    )


def test_what_a_gpu_says(monkeypatch, capsys):
    out = shown(monkeypatch, capsys, step_memory(AllocatorPeak(2300 * MIB, 2400 * MIB)))
    assert ", measured\n" in out
    assert "CUDA's allocator: 2300.0 MiB handed out at its peak, 2400.0 MiB taken from the GPU\n" in out


def test_the_data(monkeypatch, capsys):
    data = json.loads(shown(monkeypatch, capsys, step_memory(), format="json"))
    assert data["largest_batch"] == 49
    assert data["bytes_per_utterance"] == 224 * MIB
    assert (data["model"], data["memory"], data["measured"]) == ("resnet34", "store", False)
    assert data["step"]["at_peak"]["activations"] == 2 * GIB
    assert data["step_of_one_utterance"]["phase_peaks"]["backward"] == 448 * MIB


def test_a_step_predicted_as_table_and_as_data(capsys):
    assert main(QUICK) == 0
    table = capsys.readouterr().out
    assert main([*QUICK, "format=json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert table.startswith("resnet10, store activations, fp32, loss=aam over 50 classes, optim=sgd: a step on 4 x 40 ")
    rows = dict(re.findall(r"^([a-z ]+?) +([\d.]+) ", table, re.MULTILINE))
    for kind in ("weights", "gradients", "optimizer_state", "activations", "transients"):
        assert float(rows[kind.replace("_", " ")]) == pytest.approx(data["step"]["at_peak"][kind] / MIB, abs=0.051)
    assert float(rows["peak"]) == pytest.approx(data["step"]["peak_bytes"] / MIB, abs=0.051)
    assert sum(data["step"]["at_peak"].values()) == data["step"]["peak_bytes"]
    assert f"the largest batch is {data['largest_batch']}\n" in table
    assert {moment["phase"] for moment in data["step"]["timeline"]} == set(PHASES)
    assert data["step_of_one_utterance"]["peak_bytes"] < data["step"]["peak_bytes"]


def test_groups_are_those_of_training(capsys):
    words = ["model=revnet_tiny", "memory=reversible", "optim=adamw", "loss=softmax", "precision=bf16", "format=json"]
    assert main([*QUICK, *words, "batch_size=1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [data[key] for key in ("model", "memory", "optim", "loss")] == [
        "revnet_tiny",
        "reversible",
        "adamw",
        "softmax",
    ]
    weights, state = data["step"]["at_peak"]["weights"], data["step"]["at_peak"]["optimizer_state"]
    assert state == pytest.approx(2 * weights, rel=0.001)  # two moments and a counter each


def test_one_of_several_devices(capsys):
    words = ["devices=4", "loss.shard=true"]
    assert main([*QUICK, *words]) == 0
    table = capsys.readouterr().out
    assert table.startswith(
        "resnet10, store activations, fp32, loss=aam over 50 classes in 4 shards, optim=sgd: a step of one of 4 "
        "devices on 4 x 40 frames of 80 bins, predicted\n"
    )
    assert re.search(r"^buckets +\d", table, re.MULTILINE)
    sizes = []
    for arguments in ([], words[:1], words):
        assert main([*QUICK, *arguments, "format=json"]) == 0
        data = json.loads(capsys.readouterr().out)
        sizes.append((data["devices"], data["shard"], data["step"]["at_peak"]["weights"]))
        assert (data["step"]["highest"]["buckets"] > 0) == (data["devices"] > 1)
    assert [size[:2] for size in sizes] == [(1, False), (4, False), (4, True)]
    assert sizes[0][2] == sizes[1][2] == sizes[2][2] + 4 * 256 * (50 - 13)


def test_progress_is_for_those_who_wait(monkeypatch, capsys):
    patient = shown(monkeypatch, capsys, step_memory())
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(command, "predict_or_recall", lambda config, progress: progress("forward") or step_memory())
    assert command.run(MemoryPredictionConfig(batch_size=9), "svt memory") == 0
    impatient = capsys.readouterr()
    assert impatient.out == patient
    assert "memory: 1/6 phase (17 %)" in impatient.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["format=xml"], "format is 'xml', expected table or json"),
        (["loss.shard=true"], "loss.shard=true needs several devices to divide the classes among, and devices is 1; "
                              "set devices=N"),
        (["devices=0"], "devices is 0, expected 1 or more"),
        (["frames=0"], "frames is 0, expected 1 or more"),
        (["precision=half"], "precision is 'half', expected one of fp32, bf16, fp16"),
        (["batch_size=none"], "svt memory: batch_size is 'none', expected a whole number"),
        (["memory=recompute"], "svt memory: memory has no option 'recompute'; did you mean 'recompute_norm'? "
                               "(all: auto, checkpoint, hybrid, offload, planned, recompute_norm, reversible, "
                               "stash8, store)"),
        (["data=crops200"], "svt memory: there is no key 'data'; `svt memory --help` lists the keys"),
        (["memory=reversible"], "memory=reversible needs a network with reversible stages, and this one has none; "
                                "choose memory=store, or a network such as model=revnet57 or model=df_revnet89"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(words, message, capsys):
    assert main(["memory", *words]) == 1
    assert capsys.readouterr() == ("", f"error: {message}\n")
