"""The predicted memory of a step: that of the real step, of the linear model, and what is refused."""

from __future__ import annotations

import dataclasses
from itertools import cycle

import numpy as np
import pytest
import torch
from predictions import predict_once, report_once
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.config import (
    AdamW8bitConfig,
    AdamWConfig,
    LossConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    ModelConfig,
    ResNetConfig,
    SGD8bitConfig,
)
from svtoolkit.crops.crop import CropBatch
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.measurement import measure_step
from svtoolkit.memory.step_report import KINDS, MemoryReport
from svtoolkit.planning import memory_prediction
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.memory_prediction import StepMemory, count_phases, predict_memory
from svtoolkit.training.step import OptimizerStep

CPU = torch.device("cpu")
MIB, GIB = 2**20, 2**30


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def command(model: str = "resnet10", **changes) -> MemoryPredictionConfig:
    settings = {"num_classes": 100, "batch_size": 6, "frames": 100} | changes
    return MemoryPredictionConfig(model=ModelConfig(model), **settings)


def trainable_of(config: MemoryPredictionConfig):
    return build_trainable(
        config.model, config.memory, config.loss, config.optim,
        num_bins=config.num_bins, num_classes=config.num_classes, device=CPU, channels_last=config.channels_last,
    )  # fmt: skip


# ---- against the step of training ----


@pytest.mark.parametrize(("model", "precision"), [("resnet10", "fp32"), ("resnet10", "fp16"), ("revnet_tiny", "fp32")])
def test_it_is_what_a_real_step_of_training_takes(model, precision):
    """But for what is said to be left out: waveforms, masks and the copy of BatchNorm's statistics."""
    config = command(model, precision=precision)
    if model == "resnet10":  # of few channels, whose arithmetic is done sooner
        config.model = ResNetConfig(model, base_width=8)
    network, head, optimizer, _ = trainable_of(config)
    front_end = build_front_end(num_bins=config.num_bins)
    masks = SpecAugment(1.0, 1, 8, 1, 4)
    step = OptimizerStep(
        front_end, network, head, optimizer, masks, device=CPU, precision=precision,
        batch_size=config.batch_size, micro_batch=config.batch_size, gradient_clip=None,
    )  # fmt: skip
    if precision == "fp16":  # or the first steps, of a scale that is too high, are skipped and leave no state
        step.scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    rng = np.random.default_rng(0)
    batch = CropBatch(
        torch.from_numpy(rng.standard_normal((config.batch_size, front_end.num_samples(100)), dtype=np.float32)),
        torch.from_numpy(rng.integers(0, 100, config.batch_size)),
        torch.from_numpy(np.stack([masks.draw(100, config.num_bins, rng) for _ in range(config.batch_size)])),
        torch.arange(config.batch_size),
    )
    parameters, buffers = [*network.parameters(), *head.parameters()], list(network.buffers())
    step(cycle([batch]))
    with MemoryLedger() as ledger:
        ledger.count([*parameters, *buffers, *front_end.buffers(), *batch[:4]])
        for state in optimizer.state.values():
            ledger.count(value for value in state.values() if isinstance(value, torch.Tensor))
        level = sum(ledger.live().values())
        begin = len(ledger.changes)
        step(cycle([batch]))
        highest = level
        for change in ledger.changes[begin:]:
            level += change.difference
            highest = max(highest, level)
    left_out = sum(t.nbytes for t in (batch.waveforms, batch.masks, batch.entries, *buffers, *front_end.buffers()))
    predicted = report_once(config)
    assert predicted.peak_phase == "backward"
    assert predicted.peak_bytes == pytest.approx(highest - left_out, rel=0.005)


def test_optimizer_state_is_that_of_a_first_step():
    """Made of gradients of nothing, in a fraction of the time."""
    config = command(optim=AdamW8bitConfig())
    with FakeTensorMode():
        network, head, optimizer, _ = trainable_of(config)
        head.margin = config.loss.margin
        x, y = torch.randn(6, 100, 80), torch.zeros(6, dtype=torch.int64)

        def forward():
            losses = head(network(x), y).losses
            return losses.sum() / 6

        expected = measure_step([network, head], forward, inputs=[x, y], optimizer=optimizer, warm_up=1)
    found = predict_once(config).whole
    assert found.at_peak == expected.at_peak
    assert found.peak_bytes == expected.peak_bytes
    assert found.stored_bytes == expected.stored_bytes


def test_every_kind_is_what_its_name_says():
    config = command(num_classes=500)
    report = report_once(config)
    network, head, _, _ = trainable_of(config)
    weights = sum(p.numel() for p in (*network.parameters(), *head.parameters())) * 4
    assert report.at_peak["weights"] == report.at_peak["optimizer_state"] == report.highest["gradients"] == weights
    assert report.at_peak["buffers"] == sum(buffer.nbytes for buffer in network.buffers())
    assert report.at_peak["input"] == 6 * 100 * 80 * 4 + 6 * 8
    assert report.at_peak["other"] == 0
    # weight decay of all weights at once, as on CUDA
    assert report.phase_peaks["optimizer"] == pytest.approx(4 * weights, rel=0.1)


@pytest.mark.parametrize(("optim", "bytes_a_weight"), [(SGD8bitConfig(), 1), (AdamWConfig(), 8)])
def test_optimizer_state_a_weight(optim, bytes_a_weight):
    report = report_once(command(optim=optim, batch_size=1, num_classes=20_000))
    assert report.at_peak["optimizer_state"] / (report.at_peak["weights"] / 4) == pytest.approx(
        bytes_a_weight, rel=0.03
    )


def test_half_precision_halves_the_activations():
    single, half = (predict_once(command(precision=name)) for name in ("fp32", "bf16"))
    assert half.bytes_per_utterance == pytest.approx(0.5 * single.bytes_per_utterance, rel=0.05)
    assert half.whole.at_peak["weights"] == single.whole.at_peak["weights"]


def test_the_strategy_decides_about_reversible_networks():
    stored, reversible, auto = (
        predict_once(command("revnet_tiny", memory=MemoryStrategyConfig(strategy=name)), growth=False)
        for name in ("store", "reversible", "auto")
    )
    assert (stored.strategy, reversible.strategy, auto.strategy) == ("store", "reversible", "reversible")
    assert stored.whole.stored_bytes > 2 * reversible.whole.stored_bytes
    assert stored.whole.peak_bytes > reversible.whole.peak_bytes
    assert auto == reversible


def test_gib_an_utterance_of_resnet34():
    """60 MiB of its own: the loss over all speakers of VoxCeleb adds nothing that grows to speak of."""
    memory = predict_once(command("resnet34", frames=200, batch_size=64, num_classes=17982))
    assert memory.bytes_per_utterance == pytest.approx(60.1 * MIB, rel=0.02)
    assert memory.whole.at_peak["activations"] > 0.9 * memory.whole.peak_bytes


# ---- growth ----


def report_of(forward: int, backward: int, optimizer: int) -> MemoryReport:
    nothing = dict.fromkeys(KINDS, 0)
    peaks = {"forward": forward, "backward": backward, "optimizer": optimizer}
    peak_phase = max(peaks, key=peaks.__getitem__)
    return MemoryReport(peaks[peak_phase], peak_phase, nothing, nothing, 0, peaks, [])


def test_the_largest_batch_by_hand():
    """A step of 100 + 10 n in the backward pass and of 500 + n in the optimizer."""
    memory = StepMemory(21, "store", report_of(90, 100 + 10 * 21, 521), report_of(50, 110, 501))
    assert memory.bytes_per_utterance == 10
    assert memory.largest_batch(499) == 0
    assert memory.largest_batch(501) == 1
    assert memory.largest_batch(505.5) == 5
    assert memory.largest_batch(1e6) == (1e6 - 100) // 10
    assert memory.largest_batch(600) == 50


def test_the_largest_batch_is_what_fits():
    config = command()
    memory = predict_once(dataclasses.replace(config, batch_size=32))
    budget = 0.2 * GIB
    largest = memory.largest_batch(budget)
    assert largest is not None
    assert largest > 32
    fits, too_large = (
        report_once(dataclasses.replace(config, batch_size=size)).peak_bytes for size in (largest, largest + 2)
    )
    assert fits <= 1.005 * budget
    assert too_large > budget


def test_one_utterance_says_nothing_about_growth():
    memory = predict_once(command(batch_size=1))
    assert memory.single is None
    assert memory.bytes_per_utterance is None
    assert memory.largest_batch(11 * GIB) is None


@pytest.mark.parametrize("changes", [{"optim": AdamW8bitConfig()}, {"precision": "fp16"}])
def test_to_leave_out_the_second_update_changes_no_byte(changes, monkeypatch):
    found = predict_once(command(**changes))
    monkeypatch.setattr(memory_prediction, "KnownUpdate", lambda: None)
    assert found == predict_memory(command(**changes))


def test_the_single_utterance_is_a_batch_of_one():
    assert predict_once(command()).single == report_once(command(batch_size=1))


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 1), (6, 2)])
def test_progress_is_counted(batch_size, steps):
    seen: list[str] = []
    config = command(batch_size=batch_size)
    predict_memory(config, seen.append)
    assert len(seen) == count_phases(config) == 3 * steps
    assert count_phases(dataclasses.replace(config, device="cuda:0")) == 6 * steps


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_layout_of_the_convolutions_is_that_of_training(channels_last):
    config = command(channels_last=channels_last)
    network = trainable_of(config).network
    weight = next(p for p in network.parameters() if p.dim() == 4 and p.shape[1] > 1)
    assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last
    assert report_once(config).peak_bytes > 0


def test_nothing_is_computed_and_no_random_number_drawn():
    """So that an absurd batch takes no longer than a small one, and a run that asks in between goes on as it would."""
    before = torch.get_rng_state()
    report = predict_memory(command(batch_size=10**6), growth=False).whole
    assert report.peak_bytes > 2000 * GIB
    assert torch.equal(torch.get_rng_state(), before)


# ---- refusals ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": 0}, "frames is 0, expected 1 or more"),
        ({"batch_size": 0}, "batch_size is 0, expected 1 or more"),
        ({"num_classes": -1}, "num_classes is -1, expected 1 or more"),
        ({"num_bins": 0}, "num_bins is 0, expected 1 or more"),
        ({"budget_gib": 0.0}, "budget_gib is 0.0, expected a finite number above 0"),
        ({"budget_gib": float("nan")}, "budget_gib is nan, expected a finite number above 0"),
        ({"precision": "fp8"}, "precision is 'fp8', expected one of fp32, bf16, fp16"),
        ({"device": "tpu"}, "device is 'tpu', expected auto, cpu, cuda, cuda:N or mps"),
        ({"model": "resnet35"}, "there is no network 'resnet35'; did you mean 'resnet"),
        (
            {"memory": MemoryStrategyConfig(strategy="reversible")},
            "memory=reversible needs a network with reversible stages",
        ),
        ({"loss": LossConfig(scale=0.0)}, "loss=aam: scale is 0.0, expected a finite number above 0"),
        ({"frames": 1, "num_bins": 1}, "frames=1 num_bins=1 is too little for one utterance alone: Expected more than"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(UserError) as caught:
        predict_memory(command(**changes))
    assert str(caught.value).startswith(message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
def test_a_gpu_that_is_not_there():
    with pytest.raises(UserError, match=r"device is cuda, but torch .* sees no CUDA device; use device=cpu"):
        predict_memory(command(device="cuda"))


def test_a_batch_that_a_gpu_has_no_memory_for(monkeypatch):
    def fail(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("svtoolkit.planning.memory_prediction.measure_step", fail)
    with pytest.raises(UserError, match="batch_size is 6, which cpu has no memory for; lower it, or predict"):
        predict_memory(command())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("model", ["resnet34", "revnet57"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_gpu_takes_what_is_predicted(model, precision):
    predicted, measured = (
        predict_memory(
            command(model, precision=precision, batch_size=32, frames=200, device=device), growth=False
        ).whole
        for device in ("cpu", "cuda")
    )
    assert predicted.peak_bytes == pytest.approx(measured.peak_bytes, rel=0.02)
    assert measured.allocator is not None
    assert measured.allocator.allocated_bytes == pytest.approx(measured.peak_bytes, rel=0.1)
