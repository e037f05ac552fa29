"""Memory of a training step: to the byte by hand, against what autograd saves, on fake tensors and real ones."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.memory.ledger import Change
from svtoolkit.memory.measurement import KnownUpdate, _allocator_peak, measure_step
from svtoolkit.memory.step_report import (
    KINDS,
    PHASES,
    TIMELINE_POINTS,
    AllocatorPeak,
    MemoryReport,
    report_step,
)
from svtoolkit.models import build_model

torch.set_num_threads(1)

MODES = [contextlib.nullcontext, FakeTensorMode]
both_modes = pytest.mark.parametrize("mode", MODES, ids=["real", "fake"])
BATCH, INS, HIDDEN, OUTS = 5, 4, 3, 2
WEIGHTS = 4 * (INS * HIDDEN + HIDDEN + HIDDEN * OUTS + OUTS)
INPUT = 4 * BATCH * INS
MAP = 4 * BATCH * HIDDEN
"""Bytes of the hidden layer's output."""
LOSS = 4


def toy() -> nn.Sequential:
    return nn.Sequential(nn.Linear(INS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTS))


def measure_toy(optimizer=None, **options) -> MemoryReport:
    network, x = toy(), torch.ones(BATCH, INS)
    build = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False))
    return measure_step(
        [network], lambda: network(x).sum(), inputs=[x], optimizer=build(network.parameters()), **options
    )


def kinds(**bytes_of: int) -> dict[str, int]:
    return dict.fromkeys(KINDS, 0) | bytes_of


# ---- by hand ----


@both_modes
def test_a_toy_network_to_the_byte(mode):
    with mode():
        report = measure_toy()
    always = {"weights": WEIGHTS, "input": INPUT, "optimizer_state": WEIGHTS}
    # the hidden layer before and after ReLU; sum saves nothing of its input
    forward = WEIGHTS + INPUT + WEIGHTS + 2 * MAP
    stored = MAP + LOSS
    # when ReLU's gradient is made: that of the loss, that of ReLU's output, of its input, of the last weight and bias
    last = 4 * (HIDDEN * OUTS + OUTS)
    backward = WEIGHTS + INPUT + WEIGHTS + stored + 4 + 2 * MAP + last
    assert report.stored_bytes == stored
    assert report.phase_peaks == {
        "forward": forward,
        "backward": backward,
        "optimizer": WEIGHTS + INPUT + WEIGHTS + WEIGHTS,
    }
    assert (report.peak_bytes, report.peak_phase) == (backward, "backward")
    assert report.at_peak == kinds(**always, gradients=last, activations=stored, transients=4 + 2 * MAP)
    assert report.highest == kinds(**always, gradients=WEIGHTS, activations=stored, transients=4 + 2 * MAP)
    assert report.allocator is None


@both_modes
def test_without_optimizer_there_is_no_state_and_the_weights_stay(mode):
    with mode():
        network, x = toy(), torch.ones(BATCH, INS)
        report = measure_step([network], lambda: network(x).sum(), inputs=[x], warm_up=0)
        assert report.at_peak["optimizer_state"] == report.highest["optimizer_state"] == 0
        assert report.phase_peaks["optimizer"] == WEIGHTS + INPUT + WEIGHTS


@both_modes
@pytest.mark.parametrize("foreach", [False, True])
def test_adamw_keeps_two_moments_and_a_counter_a_parameter(mode, foreach):
    with mode():
        report = measure_toy(lambda parameters: torch.optim.AdamW(parameters, foreach=foreach))
    assert report.at_peak["optimizer_state"] == 2 * WEIGHTS + 4 * 4
    # one by one: the denominator of the first weight; together: the denominators of all
    scratch = WEIGHTS if foreach else 4 * INS * HIDDEN
    assert report.phase_peaks["optimizer"] >= 5 * WEIGHTS + 4 * 4 + INPUT - WEIGHTS + scratch


def test_the_first_step_has_no_optimizer_state_yet():
    first, second = measure_toy(warm_up=0), measure_toy(warm_up=1)
    assert first.at_peak["optimizer_state"] == 0
    assert first.highest["optimizer_state"] == WEIGHTS
    assert second.at_peak["optimizer_state"] == WEIGHTS
    assert measure_toy(warm_up=3) == second


def test_progress_names_every_phase_of_every_step():
    seen: list[str] = []
    measure_toy(progress=seen.append)
    assert seen == [*PHASES, *PHASES]


def test_a_callable_may_do_the_update():
    done = []
    assert measure_toy(update=lambda: done.append("update")).highest["optimizer_state"] == 0
    assert done == ["update"] * 2


@both_modes
def test_a_known_update_is_not_run_again_and_says_the_same(mode):
    updates, known = [], KnownUpdate()
    with mode():
        network = toy()
        optimizer = torch.optim.AdamW(network.parameters(), foreach=True)

        def update():
            updates.append("update")
            optimizer.step()

        def measured(batch, **options):
            x = torch.ones(batch, INS)
            return measure_step(
                [network], lambda: network(x).sum(), inputs=[x], optimizer=optimizer, update=update, **options
            )

        measured(BATCH)
        first = measured(BATCH, warm_up=0, known_update=known)
        expected, several = measured(1, warm_up=0), len(updates)
        found = measured(1, warm_up=0, known_update=known)
    assert len(updates) == several
    assert found == expected
    assert found.at_peak["input"] < first.at_peak["input"]


# ---- what storage is for ----


class Remembering(nn.Module):
    """Keeps a tensor that is neither weight nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)
        self.register_buffer("mask", torch.ones(8))
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.ones(100)
        return self.layer(x) * self.mask


@both_modes
def test_what_stays_without_being_registered_is_other(mode):
    with mode():
        network, x = Remembering(), torch.ones(3, 8)
        report = measure_step([network], lambda: network(x).sum(), inputs=[x])
    assert report.at_peak["other"] == 400
    assert report.at_peak["buffers"] == 32
    assert report.at_peak["activations"] == 4  # the loss: neither product has to keep more than input and mask


def test_tied_weights_and_tensors_in_both_lists_count_once():
    network = toy()
    twice = nn.ModuleList([network, network])
    report = measure_step([twice, network], lambda: network(torch.ones(1, INS)).sum())
    assert report.at_peak["weights"] == WEIGHTS


@dataclass
class Packed:
    codes: torch.Tensor
    scales: list[torch.Tensor]


class PackedMomentum(torch.optim.Optimizer):
    """Keeps new state each step, nested, and a table of its own."""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {})
        self.table = torch.arange(256.0)

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                codes = torch.zeros(parameter.numel(), dtype=torch.uint8)
                self.state[parameter] = {"packed": Packed(codes, [torch.ones(1), torch.ones(1)]), "step": 3}


@both_modes
def test_optimizer_state_is_found_wherever_the_optimizer_keeps_it(mode):
    with mode():
        report = measure_toy(PackedMomentum)
    assert report.at_peak["optimizer_state"] == WEIGHTS // 4 + 4 * 8 + 256 * 4
    assert report.at_peak["other"] == 0
    # while a parameter gets its new state the old one is there, too
    assert report.highest["optimizer_state"] > report.at_peak["optimizer_state"]


# ---- a real network ----


def measure_resnet(name: str, batch: int, optimizer=torch.optim.SGD, precision=None, **options) -> MemoryReport:
    torch.manual_seed(0)
    network = build_model(name).train()
    x = torch.randn(batch, 40, 80) if name == "resnet10" else torch.randn(batch, 200, 80)

    def forward():
        with torch.autocast("cpu", dtype=precision, enabled=precision is not None):
            return network(x).float().square().mean()

    if optimizer is not None:
        options["optimizer"] = optimizer(network.parameters(), lr=0.1, foreach=True)
    return measure_step([network], forward, inputs=[x], **options)


def test_fake_and_real_tensors_agree_to_the_byte():
    real = measure_resnet("resnet10", 2)
    with FakeTensorMode():
        fake = measure_resnet("resnet10", 2)
    assert fake == real


@pytest.mark.parametrize(
    ("optimizer", "precision"), [(torch.optim.SGD, torch.bfloat16), (torch.optim.AdamW, torch.float16)]
)
def test_fake_and_real_tensors_agree_to_the_byte_under_autocast(optimizer, precision):
    """But for BatchNorm's saved statistics: they are float32, and torch takes them for what the map is."""
    real = measure_resnet("resnet10", 2, optimizer, precision)
    with FakeTensorMode():
        fake = measure_resnet("resnet10", 2, optimizer, precision)
    channels = sum(
        len(layer.weight) for layer in build_model("resnet10").modules() if isinstance(layer, nn.BatchNorm2d)
    )
    statistics = 2 * channels * 2  # mean and deviation, two bytes each
    assert real.stored_bytes - fake.stored_bytes == statistics
    assert real.phase_peaks["forward"] - fake.phase_peaks["forward"] == statistics
    assert fake.at_peak | {"activations": 0} == real.at_peak | {"activations": 0}
    assert 0 <= real.peak_bytes - fake.peak_bytes <= statistics


def test_activations_are_what_autograd_saves():
    """Another source of the same figure: what saved_tensors_hooks is shown, each storage once."""
    with FakeTensorMode():
        network, x = build_model("resnet50").train(), torch.randn(3, 200, 80)
        saved: dict[int, int] = {}
        kept = []

        def pack(tensor):
            saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
            kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = network(x).square().sum()
        for tensor in [x, *network.parameters(), *network.buffers()]:
            saved.pop(tensor.untyped_storage()._cdata, None)
        kept.clear()
        del loss
        report = measure_step([network], lambda: network(x).square().sum(), inputs=[x], warm_up=0)
    assert report.stored_bytes == sum(saved.values()) + LOSS
    assert report.at_peak["weights"] == 4 * sum(parameter.numel() for parameter in network.parameters())


@cache
def measure_untrained(name: str, batch: int) -> MemoryReport:
    """Of a first step without an update, on fake tensors."""
    with FakeTensorMode():
        return measure_resnet(name, batch, None, warm_up=0)


@pytest.mark.parametrize(
    ("name", "batch", "gib"), [("resnet34", 2, 0.056), ("resnet34", 64, 0.0587), ("resnet101", 64, 0.283)]
)
def test_gib_per_utterance_of_published_networks(name, batch, gib):
    """float32, 200 frames of 80 bins. The very first utterances of ResNet34 cost less: they peak where few maps are
    left and the gradients are there already.
    """
    one, more = (measure_untrained(name, size) for size in (1, batch))
    assert (more.peak_bytes - one.peak_bytes) / (batch - 1) / 2**30 == pytest.approx(gib, rel=0.02)
    assert more.peak_phase == "backward"
    assert more.at_peak["activations"] > 0.7 * more.peak_bytes


# ---- the report ----


def test_parts_add_up_everywhere():
    with FakeTensorMode():
        report = measure_resnet("resnet10", 2)
    totals = [sum(moment.bytes.values()) for moment in report.timeline]
    assert sum(report.at_peak.values()) == report.peak_bytes == max(totals) == max(report.phase_peaks.values())
    assert max(Counter(moment.phase for moment in report.timeline).values()) == TIMELINE_POINTS
    assert list(dict.fromkeys(moment.phase for moment in report.timeline)) == list(PHASES)
    for phase in PHASES:
        of_phase = [total for total, m in zip(totals, report.timeline, strict=True) if m.phase == phase]
        assert max(of_phase) <= report.phase_peaks[phase]
    for kind in KINDS:
        assert max(moment.bytes[kind] for moment in report.timeline) <= report.highest[kind]
    data = report.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["timeline"][0]["bytes"]["weights"] == report.at_peak["weights"]


sizes = st.lists(st.integers(1, 1000), min_size=1, max_size=700)


@given(sizes, st.data())
def test_any_history_adds_up(amounts, data):
    """Storages of given sizes come in one phase and go in a later one or never: compared with a plain sum."""
    born = [data.draw(st.integers(0, 2)) for _ in amounts[:12]]
    gone = [data.draw(st.integers(phase, 3)) for phase in born]
    labels = {number: data.draw(st.sampled_from(KINDS)) for number in range(len(born))}
    changes = {
        phase: [Change(n, amounts[n]) for n, at in enumerate(born) if at == index]
        + [Change(n, -amounts[n]) for n, at in enumerate(gone) if at == index]
        for index, phase in enumerate(PHASES)
    }
    report = report_step({99: 7}, changes, labels)
    for index, phase in enumerate(PHASES):
        there = [n for n in range(len(born)) if born[n] <= index <= gone[n]]
        assert report.phase_peaks[phase] == 7 + sum(amounts[n] for n in there)
    assert report.peak_bytes == max(report.phase_peaks.values())
    assert sum(report.at_peak.values()) == report.peak_bytes
    assert report.peak_phase == max(PHASES, key=report.phase_peaks.__getitem__)


def test_a_short_step_has_a_short_timeline_and_a_long_one_keeps_its_peak():
    few = report_step({}, {phase: [] for phase in PHASES}, {})
    assert (len(few.timeline), few.peak_bytes) == (3, 0)
    many = [Change(number, 1) for number in range(2000)] + [Change(5000, 9999), Change(5000, -9999)]
    report = report_step({}, {"forward": many, "backward": [], "optimizer": []}, {})
    assert len(report.timeline) == TIMELINE_POINTS + 2
    assert max(sum(moment.bytes.values()) for moment in report.timeline) == report.peak_bytes == 2000 + 9999


# ---- CUDA ----


def test_the_allocator_is_read_on_its_device(monkeypatch):
    asked: list = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: asked.append(device))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: asked.append(device) or 11)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: asked.append(device) or 22)
    gpu = torch.device("cuda", 1)
    assert _allocator_peak(gpu) == AllocatorPeak(11, 22)
    assert asked == [gpu] * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_the_step_is_what_was_predicted_and_what_the_allocator_counts():
    network = build_model("resnet34").cuda().train()
    x = torch.randn(16, 200, 80, device="cuda")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, foreach=True)
    real = measure_step([network], lambda: network(x).float().square().mean(), inputs=[x], optimizer=optimizer)
    with FakeTensorMode():
        fake = measure_resnet("resnet34", 16)
    assert fake.peak_bytes == pytest.approx(real.peak_bytes, rel=0.02)
    assert real.allocator is not None
    assert real.allocator.allocated_bytes >= 0.98 * real.peak_bytes
    assert real.allocator.reserved_bytes >= real.allocator.allocated_bytes
