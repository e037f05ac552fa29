"""The predicted memory of one of several devices, against that of a real step of two processes and by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from forked import run_group
from predictions import predict_once, report_once
from tiny_runs import tiny_config
from torch.testing._internal.distributed.fake_pg import FakeStore

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.config import (
    AdamWConfig,
    LossConfig,
    MemoryPredictionConfig,
    OptimConfig,
    ResNetConfig,
    SGD8bitConfig,
    SGDConfig,
)
from svtoolkit.crops.crop import CropBatch
from svtoolkit.distributed.rank import Rank
from svtoolkit.distributed.world import CPU, World, process_group
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.measurement import _tensors_of_optimizer
from svtoolkit.memory.step_report import MemoryReport
from svtoolkit.planning import memory_prediction
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory
from svtoolkit.training.fitting import suggestions, try_pass
from svtoolkit.training.step import OptimizerStep

needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)

FRAMES, BINS, CROPS, CLASSES = 40, 24, 4, 3001
CASES = {
    "whole, sgd": (False, SGDConfig()),
    "sharded, sgd": (True, SGDConfig()),
    "sharded, adamw": (True, AdamWConfig()),
    "sharded, sgd_8bit": (True, SGD8bitConfig(backend="torch")),
}


def command(*, shard: bool, optim: OptimConfig | None = None, **changes: Any) -> MemoryPredictionConfig:
    """A step whose head weighs as much as all the rest."""
    settings = {"frames": FRAMES, "num_bins": BINS, "batch_size": CROPS, "num_classes": CLASSES, "devices": 2} | changes
    return MemoryPredictionConfig(
        model=ResNetConfig("resnet10", embedding_dim=64, base_width=4),
        loss=LossConfig(shard=shard),
        optim=optim or SGDConfig(),
        **settings,
    )


def real_step(config: MemoryPredictionConfig, world: World) -> tuple[OptimizerStep, CropBatch]:
    network, head, optimizer, _ = build_trainable(
        config.model, config.memory, config.loss, config.optim,
        num_bins=BINS, num_classes=CLASSES, device=CPU, channels_last=True, world=world,
    )  # fmt: skip
    for group in optimizer.param_groups:
        if "foreach" in group:
            group["foreach"] = True  # what torch chooses on CUDA
    masks = SpecAugment(1.0, 1, 8, 1, 4)
    step = OptimizerStep(
        build_front_end(num_bins=BINS), network, head, optimizer, masks, device=CPU, precision="fp32",
        batch_size=CROPS * world.size, micro_batch=CROPS, gradient_clip=None, world=world,
    )  # fmt: skip
    rng = np.random.default_rng(world.rank)
    samples = (CROPS, step.front_end.num_samples(FRAMES))
    batch = CropBatch(
        torch.from_numpy(rng.standard_normal(samples, dtype=np.float32)),
        torch.from_numpy(rng.integers(0, CLASSES, CROPS)),
        torch.from_numpy(np.stack([masks.draw(FRAMES, BINS, rng) for _ in range(CROPS)])),
        torch.arange(CROPS),
    )
    return step, batch


def highest_level(ledger: MemoryLedger, begin: int, level: int) -> int:
    highest = level
    for change in ledger.changes[begin:]:
        level += change.difference
        highest = max(highest, level)
    return highest


def peaks_of(config: MemoryPredictionConfig, world: World) -> dict[str, int]:
    """The most that is there at once in a step, and in a try of one, but for what is said not to be counted."""
    step, batch = real_step(config, world)
    step(cycle([batch]))
    buffers = [*step.network.buffers(), *step.front_end.buffers()]
    with MemoryLedger() as ledger:
        ledger.count([*step.parameters, *buffers, *batch[:4]])
        ledger.count(_tensors_of_optimizer(step.optimizer))
        step(cycle([batch]))  # shows what replicas add their gradients up in
        begin, level = len(ledger.changes), sum(ledger.live().values())
        step(cycle([batch]))
        peak = highest_level(ledger, begin, level)
        step.optimizer.zero_grad(set_to_none=True)
        begin, level = len(ledger.changes), sum(ledger.live().values())
        try_pass(step, batch.waveforms.shape[1], CROPS)
        tried = highest_level(ledger, begin, level)
    left_out = sum(t.nbytes for t in (batch.waveforms, batch.masks, batch.entries, *step.network.buffers(), *buffers))
    return {"step": peak - left_out, "try": tried - left_out}


def work(rank: int, folder: Path) -> None:
    with process_group(Rank(rank, 2, rank, 2), CPU, "the test") as world:
        results = {name: peaks_of(command(shard=shard, optim=optim), world) for name, (shard, optim) in CASES.items()}
    torch.save(results, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the first of two processes found."""
    folder = tmp_path_factory.mktemp("measured")
    run_group(work, 2, folder)
    return torch.load(folder / "0.pt")


def stored(report: MemoryReport) -> int:
    return report.stored_bytes


def forward_peak(report: MemoryReport) -> int:
    return report.phase_peaks["forward"]


@needs_gloo
@pytest.mark.parametrize("name", CASES)
def test_it_is_what_one_of_two_processes_takes(name, measured):
    shard, optim = CASES[name]
    predicted = report_once(command(shard=shard, optim=optim)).peak_bytes
    assert predicted == pytest.approx(measured[name]["step"], rel=0.01)


@needs_gloo
@pytest.mark.parametrize("name", CASES)
def test_trying_a_batch_takes_no_less_than_a_step(name, measured):
    """A sharded head compares as many crops as there will be; 8-bit state, which is little, is left out."""
    assert measured[name]["try"] > (0.95 if "8bit" in name else 1.0) * measured[name]["step"]


def test_within_a_run_of_several_processes_another_process_predicts(monkeypatch):
    """Whose own processes the head would talk to."""
    asked = []

    @contextmanager
    def another_process(count: int, *, killed: str) -> Iterator[SimpleNamespace]:
        def submit(work: Callable[..., StepMemory], *arguments: Any, **named: Any) -> SimpleNamespace:
            dist.destroy_process_group()  # there is none in a process of its own
            asked.append(count)
            work, arguments = pickle.loads(pickle.dumps((work, arguments)))
            return SimpleNamespace(result=partial(work, *arguments, **named))

        yield SimpleNamespace(submit=submit)

    monkeypatch.setattr(memory_prediction, "worker_processes", another_process)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    found = predict_memory(command(shard=True), growth=False)
    assert asked == [1]
    assert found.single is None
    assert found.whole.peak_bytes == report_once(command(shard=True)).peak_bytes
    assert not dist.is_initialized()


def test_by_hand():
    """docs/scale.md: what belongs to the weights is divided by the devices, and the logits are those of all crops."""
    classes, dim, devices = 80_000, 64, 8
    settings = {"num_classes": classes, "devices": devices}
    whole, shares = (report_once(command(shard=shard, **settings)) for shard in (False, True))
    network = report_once(command(shard=False, num_classes=1)).at_peak["weights"] - 4 * dim
    head = 4 * classes * dim
    for kind in ("weights", "gradients", "optimizer_state"):
        assert whole.highest[kind] == network + head
        assert shares.highest[kind] == network + head // devices
    assert whole.highest["buckets"] == network + head
    assert shares.highest["buckets"] == network
    logits = 4 * CROPS * devices * (classes // devices)
    fewer = report_once(command(shard=True, num_classes=classes // 2, devices=devices))
    kept, forward = (2 * (of(shares) - of(fewer)) for of in (stored, forward_peak))
    norms = 2 * 4 * classes // devices  # of the rows: as they are, and with a floor
    assert kept == head // devices + norms + 2 * logits  # normalised weights, and two copies of the logits
    assert forward == 3 * head // devices + norms + 4 * logits  # beside weights and momentum


def test_one_device_has_no_buckets():
    assert report_once(command(shard=False, devices=1)).highest["buckets"] == 0


def test_an_utterance_more_is_one_more_on_every_device():
    two, eight = (predict_once(command(shard=True, num_classes=80_000, devices=devices)) for devices in (2, 8))
    assert two.bytes_per_utterance == pytest.approx(eight.bytes_per_utterance, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"devices": 0}, "devices is 0, expected 1 or more"),
        (
            {"devices": 1},
            r"loss\.shard=true needs several devices .* devices is 1; set devices=N",
        ),
        (
            {"num_classes": 1},
            r"1 classes .* cannot be divided among 2 processes; set loss\.shard=false",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, says):
    with pytest.raises(UserError, match=says):
        predict_memory(command(shard=True, **changes))
    assert not dist.is_initialized()


def test_suggestions_for_a_run_are_for_its_devices(tmp_path):
    config = tiny_config(tmp_path, tmp_path, loss__shard=True, trainer__precision="bf16")
    peaks = dict(suggestions(config, 8, CLASSES, World(size=4)))
    assert list(peaks) == ["trainer.micro_batch=2", "memory=recompute_norm", "memory=checkpoint", "optim=sgd_8bit"]
    step = replace(
        command(shard=True, batch_size=2, devices=4), precision="bf16", model=config.model, loss=config.loss,
    )  # fmt: skip
    assert peaks["trainer.micro_batch=2"] == report_once(step).peak_bytes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("shard", [False, True])
def test_a_gpu_takes_what_is_predicted(shard):
    settings = {"batch_size": 32, "frames": 200, "num_classes": 200_000, "devices": 4}
    predicted, measured = (
        predict_memory(command(shard=shard, device=device, **settings), growth=False).whole
        for device in ("cpu", "cuda")
    )
    assert predicted.peak_bytes == pytest.approx(measured.peak_bytes, rel=0.02)
    assert measured.allocator is not None
    assert measured.allocator.allocated_bytes == pytest.approx(measured.peak_bytes, rel=0.1)
