"""The GPU of a Mac, which is pretended: what is chosen and refused, and that nothing of a step is float64 there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_runs import tiny_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from svtoolkit.augmentation.augmenter import collate_changes
from svtoolkit.config import (
    AdamW8bitConfig,
    MemoryPredictionConfig,
    OptimConfig,
    ResNetConfig,
    SGD8bitConfig,
    SGDConfig,
)
from svtoolkit.crops.crop import CropBatch
from svtoolkit.device import autocast, choose_device, empty_cache, is_out_of_memory, leaves_mps_idle, send, synchronize
from svtoolkit.distributed.rank import Rank
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.models.pooling import StretchedStatistics
from svtoolkit.planning import memory_prediction
from svtoolkit.planning.memory_layout import fails_in_channels_last
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.training import experiment
from svtoolkit.training.processes import device_of

MPS = torch.device("mps")


@pytest.fixture
def a_mac(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


@pytest.mark.usefixtures("a_mac")
def test_it_is_chosen_where_it_is_asked_for():
    assert choose_device("mps") == MPS
    assert choose_device("auto") == torch.device("cpu"), "nobody has seen it compute the right thing yet"
    assert leaves_mps_idle("auto")
    assert not leaves_mps_idle("cpu")
    assert not leaves_mps_idle("mps")


def test_where_it_is_not_there_it_is_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError) as caught:
        choose_device("mps", "trainer.device")
    assert str(caught.value) == (
        f"trainer.device is mps, but torch {torch.__version__} sees no GPU of a Mac (Apple silicon or AMD, macOS 12.3 "
        "or newer); use trainer.device=cpu"
    )


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_it_computes_in_float32_alone(precision):
    with pytest.raises(UserError, match=f"^precision is {precision}, with which .* on mps; use fp32$"):
        autocast(MPS, precision)
    with autocast(MPS, "fp32"):
        pass


@pytest.mark.usefixtures("a_mac")
def test_several_processes_and_predictions_are_refused():
    with pytest.raises(UserError, match=r"^trainer\.device is mps, one GPU for 2 processes; use trainer\.devices=1$"):
        device_of("mps", Rank(0, 2, 0, 2))
    with pytest.raises(UserError, match=r"^device is mps, whose memory is .*; use device=cpu$"):
        predict_memory(MemoryPredictionConfig(device="mps"))


def test_channels_last_is_left_out():
    assert fails_in_channels_last(torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3)), MPS)
    assert not fails_in_channels_last(torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3)), torch.device("cpu"))


def test_its_memory_runs_out_in_words(monkeypatch, tmp_path):
    error = RuntimeError("MPS backend out of memory (MPS allocated: 17.5 GiB, max allowed: 18.1 GiB).")
    assert is_out_of_memory(error)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_run_out_of_its_memory_says_what_to_set(monkeypatch, tmp_path):
    class Stopped:
        device = MPS
        config = tiny_config(tmp_path / "data", tmp_path / "exp")
        world = ALONE

        class sampler:  # noqa: N801
            micro_batch = 64

        class loop:  # noqa: N801
            finished_steps = 0

            @staticmethod
            def run(*_: object) -> None:
                raise RuntimeError("MPS backend out of memory")

        @staticmethod
        def batches() -> object:
            return (number for number in ())

    monkeypatch.setattr(experiment, "_resume", lambda *_: Stopped)
    with pytest.raises(UserError, match=r"with 64 crops at once; the same .* with trainer\.micro_batch=32$"):
        experiment.train(tiny_config(tmp_path / "data", tmp_path / "exp"))


def test_its_cache_and_its_clock_are_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: asked.append("empty"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: asked.append("wait"))
    empty_cache(MPS)
    synchronize(MPS)
    empty_cache(torch.device("cpu"))
    synchronize(torch.device("cpu"))
    assert asked == ["empty", "wait"]


@pytest.mark.parametrize(("device", "asynchronous"), [("mps", False), ("cuda", True)])
def test_copies_to_it_are_waited_for(monkeypatch, device, asynchronous):
    calls = []
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *_, **options: calls.append(options) or tensor)
    rows = torch.zeros(2, 3)
    CropBatch(rows, rows, rows, rows).to(torch.device(device))
    send([rows], torch.device(device))
    assert calls == [{"non_blocking": asynchronous}] * 5


class NoDoubles(TorchDispatchMode):
    """Refuses float64 as torch does on mps; for the tensors of the CPU that stand in for those of mps."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, result)):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64:
                raise TypeError(f"{func}: mps has no float64")
        return result


def test_float64_is_seen():
    with NoDoubles(), pytest.raises(TypeError, match="mps has no float64"):
        torch.zeros(2).double()


@pytest.mark.parametrize(
    "optim",
    [
        SGDConfig(lr=0.1),
        SGD8bitConfig(lr=0.1, backend="torch", min_8bit_size=100),
        AdamW8bitConfig(lr=0.1, backend="torch", min_8bit_size=100),
    ],
    ids=lambda optim: optim.name,
)
def test_no_part_of_a_step_is_float64(optim: OptimConfig):
    """Filter bank, network, head and update."""
    cpu = torch.device("cpu")
    config = MemoryPredictionConfig(
        frames=40, batch_size=2, num_bins=24, num_classes=50, optim=optim,
        model=ResNetConfig(name="resnet10", embedding_dim=16, base_width=4),
    )  # fmt: skip
    front_end = build_front_end(num_bins=24)
    step = memory_prediction._Step(config, cpu, World())
    step.make_optimizer_state()  # with the tables of 8 bits, which are made on the CPU once
    with NoDoubles():
        features = front_end(torch.randn(2, front_end.num_samples(40)))
        loss = step._forward(features, torch.zeros(2, dtype=torch.int64))
        loss.backward()
        step._update()
    assert all(parameter.grad.isfinite().all() for parameter in step.parameters)


def test_changes_of_crops_come_in_float32():
    changes = collate_changes([{"gain": {"gain_db": np.float64(1.5)}}, {"gain": {"gain_db": 2.5}}, {}])
    assert changes["gain"].parameters["gain_db"].dtype == torch.float32


def test_the_statistics_of_long_recordings_are_merged_on_the_cpu():
    """On tensors that only claim to be there."""
    with FakeTensorMode():
        statistics = StretchedStatistics()
        for _ in range(2):
            statistics.include(torch.empty(1, 4, 5, 6, device="mps"))
        assert statistics.mean.device.type == statistics.squares.device.type == "cpu"
        assert statistics.device == torch.device("mps:0")
