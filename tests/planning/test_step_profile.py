"""One step on fake tensors tells those of all batches: beside the prediction of each of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import accumulate
from json import dumps, loads

import pytest
import torch

from svtoolkit.config import (
    AdamWConfig,
    CheckpointConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    ModelConfig,
    PlannedConfig,
    RecomputeNormConfig,
    ResNetConfig,
    SGD8bitConfig,
    SGDConfig,
)
from svtoolkit.losses import build_head
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.step_report import BACKWARD, FORWARD
from svtoolkit.models import build_model
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.profiler import profiler_of
from svtoolkit.planning.step_profile import Level, StepProfile, envelope
from svtoolkit.planning.update_profile import UpdateProfile
from svtoolkit.reversible import Chain, Sharing, share_values
from svtoolkit.reversible.plans import Leaf

FRAMES, BINS, CLASSES = 24, 16, 50
WAVEFORM = 4 * 160 * FRAMES


def question() -> MemoryPredictionConfig:
    return MemoryPredictionConfig(
        frames=FRAMES, num_bins=BINS, num_classes=CLASSES, optim=SGDConfig(), device="cpu",
        model=ResNetConfig("resnet10", base_width=8),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "memory", "precision"),
    [
        ("resnet10", MemoryStrategyConfig("store"), "bf16"),
        ("resnet10", RecomputeNormConfig("recompute_norm", expansions=True), "fp32"),
        ("resnet10", CheckpointConfig("checkpoint", segments="recursive"), "fp32"),
        ("resnet10", MemoryStrategyConfig("stash8"), "fp32"),
        ("revnet_tiny", MemoryStrategyConfig("reversible"), "fp32"),
    ],
)
def test_the_peak_of_any_batch_is_that_of_its_own_prediction(model, memory, precision):
    asked = replace(question(), memory=memory, precision=precision)
    if model != "resnet10":
        asked.model = ModelConfig(model)
    with profiler_of(asked) as profiler:
        profile = profiler.profile_step(memory, precision)
        state = profiler.profile_update(asked.optim).state
        buffers = sum(buffer.nbytes for buffer in profiler.network.buffers())  # copied by a step, not in a prediction
    for batch in (1, 40):
        peaks = predict_memory(replace(asked, batch_size=batch), growth=False).whole.phase_peaks
        expected = max(peaks[FORWARD], peaks[BACKWARD]) + batch * WAVEFORM + buffers
        assert profile.peak_bytes(batch) + state == expected


@pytest.mark.parametrize("optim", [SGDConfig(), AdamWConfig(), SGD8bitConfig()])
def test_the_state_of_an_optimizer_is_that_of_a_prediction(optim):
    asked = replace(question(), optim=optim)
    with profiler_of(asked) as profiler:
        update = profiler.profile_update(optim)
    predicted = predict_memory(replace(asked, batch_size=2), growth=False).whole.highest["optimizer_state"]
    assert update.state == pytest.approx(predicted, rel=1e-3)  # of scales, where parameters are merged
    assert sum(update.counted.values()) > 5


@pytest.mark.parametrize("memory", [MemoryStrategyConfig("store"), CheckpointConfig("checkpoint", segments="sqrt")])
def test_gradients_of_an_earlier_micro_batch_are_there_from_the_beginning(memory):
    """As the second backward pass on real tensors finds them."""
    with profiler_of(question()) as profiler:
        profile = profiler.profile_step(memory, "fp32")
        state = sum(b.nbytes for module in (profiler.network, profiler.head) for b in module.buffers())
    network = build_model("resnet10", num_bins=BINS, base_width=8).train()
    apply_strategy(network, **vars(memory))
    head = build_head(embedding_dim=256, num_classes=CLASSES, name="aam", margin=0.2, scale=32.0)
    features, labels = torch.randn(3, FRAMES, BINS), torch.zeros(3, dtype=torch.int64)
    with MemoryLedger() as ledger:
        ledger.count([features, labels, *network.parameters(), *network.buffers(), *head.parameters(), *head.buffers()])
        for _ in range(2):
            present, begin = sum(ledger.live().values()), len(ledger.changes)
            losses = head(network(features), labels).losses
            (losses.sum() / len(losses)).backward()
            del losses
    measured = present + max(accumulate(change.difference for change in ledger.changes[begin:]))
    predicted = profile.peak_bytes(3, accumulates=True) - state - 3 * WAVEFORM
    assert predicted == pytest.approx(measured, rel=0.005)
    assert profile.peak_bytes(3) < profile.peak_bytes(3, accumulates=True)


def in_parts(network, **settings):
    """Every block in parts of the batch, one after the other."""
    for module in network.modules():
        if isinstance(module, Chain):
            module.planner = lambda count: tuple(Leaf(position, "chunks") for position in range(count))
    return "planned"


def sharing(network, **settings):
    """What several stages read is mixed a part of the batch after the other."""
    share_values(network, Sharing())
    return "planned"


def as_strategy(name):
    return lambda network, **settings: apply_strategy(network, name)


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("resnet10", in_parts),
        ("redimnet2_b4", sharing),
        ("reversed_resnet34", as_strategy("reversible")),
        ("revnext_tiny", as_strategy("hybrid")),
    ],
)
def test_what_grows_with_a_part_of_the_batch_is_as_in_a_step_and_no_less(monkeypatch, model, strategy):
    monkeypatch.setattr("svtoolkit.planning.profiler.apply_strategy", strategy)
    asked = question() if model == "resnet10" else replace(question(), model=ModelConfig(model))
    with profiler_of(asked) as profiler:
        profile = profiler.profile_step(MemoryStrategyConfig("store"), "fp32")
        buffers = sum(b.nbytes for module in (profiler.network, profiler.head) for b in module.buffers())
        network, head = profiler.network, profiler.head
        for batch in (9, 12, 128):
            features, labels = torch.empty(batch, FRAMES, BINS), torch.zeros(batch, dtype=torch.int64)
            network.zero_grad()
            head.zero_grad()
            with MemoryLedger() as ledger:
                ledger.count([features, labels, *network.parameters(), *network.buffers(), *head.parameters()])
                losses = head(network(features), labels).losses
                (losses.sum() / len(losses)).backward()
                del losses
            predicted = profile.peak_bytes(batch) - buffers - batch * WAVEFORM
            assert 0.999 * ledger.peak() <= predicted <= 1.01 * ledger.peak()


def test_a_plan_is_profiled_after_a_reversible_step():
    """As on one core, where one process does it all."""
    with profiler_of(replace(question(), model=ModelConfig("revnext_tiny"))) as profiler:
        profiler.profile_step(MemoryStrategyConfig("hybrid"), "fp32")
        profile = profiler.profile_step(PlannedConfig("planned", times=1.7), "fp32")
    assert profile.strategy == "planned"


def test_it_survives_json():
    with profiler_of(question()) as profiler:
        step = profiler.profile_step(MemoryStrategyConfig("store"), "fp32")
        update = profiler.profile_update(SGDConfig())
    assert StepProfile.from_plain(loads(dumps(asdict(step)))) == step
    assert UpdateProfile.from_plain(loads(dumps(asdict(update)))) == update


def test_an_envelope_holds_the_highest_line_of_every_batch():
    generator = torch.Generator().manual_seed(0)
    lines = [Level(int(a), float(b), 0, 0.0, 0.0) for a, b in torch.randint(0, 1000, (200, 2), generator=generator)]
    kept = envelope(lines)
    assert 2 < len(kept) < 20
    for batch in (1, 2, 3, 10, 1000):
        assert max(line.bytes(batch) for line in kept) == max(line.bytes(batch) for line in lines)
