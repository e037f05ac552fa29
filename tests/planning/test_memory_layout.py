"""channels_last where it is asked for, but not where the CPU's convolutions fail in it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from forked import Forked
from tiny_runs import tiny_config
from torch import nn

from svtoolkit.config import LossConfig, MemoryStrategyConfig, ResNetConfig, SGDConfig
from svtoolkit.models import build_model
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.memory_layout import fails_in_channels_last, lay_out_channels_last
from svtoolkit.training.experiment import Experiment

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def is_channels_last(network: nn.Module) -> bool:
    (last,) = {
        weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
        for weight in network.parameters()
        if weight.dim() == 4 and min(weight.shape[1], *weight.shape[2:]) > 1
    }
    return last


def train_narrow(done: Path) -> None:
    torch.set_num_threads(1)
    trainable = build_trainable(
        ResNetConfig(name="resnet10", base_width=4), MemoryStrategyConfig(), LossConfig(), SGDConfig(),
        num_bins=80, num_classes=10, device=CPU, channels_last=True,
    )  # fmt: skip
    for _ in range(3):
        trainable.network(torch.randn(8, 200, 80)).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in trainable.network.parameters())
    done.touch()


def test_a_narrow_network_trains_on_the_cpu_with_features_of_full_size(tmp_path):
    """In a process of its own, which a fault of memory would end."""
    process = Forked(train_narrow, tmp_path / "done")
    process.join()
    assert process.exitcode == 0, process.output()
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("name", "width", "fails"),
    [
        ("resnet10", 4, True),
        ("resnet10", 15, True),
        ("resnet10", 16, False),
        ("resnet50", 4, False),  # four times as wide where it strides
        ("resnet34", 32, False),
    ],
)
def test_which_networks_fail(name, width, fails):
    network = build_model(name, base_width=width)
    assert fails_in_channels_last(network, CPU) == fails
    assert not fails_in_channels_last(network, GPU)


@pytest.mark.parametrize(
    ("layer", "fails"),
    [
        (nn.Conv2d(8, 16, 1, stride=2), True),
        (nn.Conv2d(8, 16, 1, stride=(1, 2)), True),
        (nn.Conv2d(32, 64, 1, stride=2, groups=4), True),
        (nn.Conv2d(8, 16, 1), False),
        (nn.Conv2d(8, 16, 3, stride=2), False),
        (nn.Conv1d(8, 16, 1, stride=2), False),
    ],
)
def test_which_convolutions_fail(layer, fails):
    assert fails_in_channels_last(nn.Sequential(nn.ReLU(), layer), CPU) == fails


def test_the_layout_is_that_of_every_convolution_and_changes_no_weight():
    network = build_model("resnet10", base_width=16)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert not is_channels_last(network)
    lay_out_channels_last(network)
    assert is_channels_last(network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(("width", "last"), [(4, False), (16, True)])
def test_a_run_says_that_it_leaves_it_out(width, last, speech, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        experiment = Experiment(tiny_config(speech, tmp_path, model__base_width=width))
    assert is_channels_last(experiment.step.network) == last
    assert ("trainer.channels_last is left out" in caplog.text) != last
