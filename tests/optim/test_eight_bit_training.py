"""Two hundred steps of a small network: 8-bit state ends where 32-bit state does, and where bitsandbytes does."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit

torch.set_num_threads(1)

SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
ADAMW = {"lr": 1e-3, "weight_decay": 0.05}
CASES = [("regression", 1, 256), ("classification", 2, 2048)]
"""Task, seed, values in a block of 8-bit state."""


@functools.cache
def final_loss(kind: type[Any], task: str, seed: int, settings: tuple[tuple[str, Any], ...]) -> float:
    """Loss over 512 vectors of 40 values after 25 passes in batches of 64; most weights are in two large matrices."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(512, 40, generator=generator)
    target = torch.tanh(inputs @ torch.randn(40, 10, generator=generator) / 4)
    target += 0.5 * torch.randn(512, 10, generator=generator)
    if task == "classification":
        target = target.argmax(dim=1)
    measure = F.cross_entropy if task == "classification" else F.mse_loss
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = kind(network.parameters(), **dict(settings))
    for step in range(200):
        batch = slice(64 * step % 512, 64 * step % 512 + 64)
        optimizer.zero_grad()
        measure(network(inputs[batch]), target[batch]).backward()
        optimizer.step()
    if kind in (SGD8bit, AdamW8bit):
        codes = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        assert sum(value.dtype == torch.uint8 for value in codes) == (2 if kind is SGD8bit else 4)
    with torch.no_grad():
        return float(measure(network(inputs), target))


def loss(kind: type[Any], task: str, seed: int, **settings: Any) -> float:
    return final_loss(kind, task, seed, tuple(sorted(settings.items())))


@pytest.mark.parametrize(("task", "seed", "block_size"), CASES)
def test_sgd_ends_within_a_percent(task, seed, block_size):
    expected = loss(torch.optim.SGD, task, seed, **SGD, nesterov=True)
    found = loss(SGD8bit, task, seed, **SGD, nesterov=True, block_size=block_size)
    assert found == pytest.approx(expected, rel=0.01)
    assert found != expected


@pytest.mark.parametrize(("task", "seed", "block_size"), CASES)
def test_adamw_ends_within_a_percent(task, seed, block_size):
    expected = loss(torch.optim.AdamW, task, seed, **ADAMW)
    found = loss(AdamW8bit, task, seed, **ADAMW, block_size=block_size)
    assert found == pytest.approx(expected, rel=0.01)
    assert found != expected


@pytest.mark.parametrize(
    ("kind", "settings", "task", "seed"),
    [(SGD8bit, SGD, "classification", 2), (AdamW8bit, ADAMW, "regression", 1)],
    ids=["sgd", "adamw"],
)
def test_both_backends_end_alike(kind, settings, task, seed):
    theirs = getattr(pytest.importorskip("bitsandbytes").optim, kind.__name__)
    found = loss(kind, task, seed, **settings, block_size=256)
    assert found == pytest.approx(loss(theirs, task, seed, **settings), rel=0.01)


def step_of_a_small_gradient_that_vanishes(kind: type[Any]) -> float:
    """Of a weight whose gradient is 1e-5 of its neighbour's, and then 0; in learning rates."""
    parameter = nn.Parameter(torch.zeros(4096))
    optimizer = kind([parameter], lr=1e-3, weight_decay=0.0)
    strong = torch.arange(4096) % 64 == 0
    parameter.grad = torch.where(strong, 1.0, 1e-5)
    optimizer.step()
    before = parameter.detach().clone()
    parameter.grad = torch.where(strong, 1.0, 0.0)
    optimizer.step()
    return float((parameter.detach() - before).abs().max() / 1e-3)


def test_a_second_moment_that_is_rounded_to_zero_makes_no_leap():
    """Its code is that of 0, the first moment's is not: first / eps would be hundreds of learning rates."""
    assert step_of_a_small_gradient_that_vanishes(torch.optim.AdamW) < 1.01
    assert step_of_a_small_gradient_that_vanishes(AdamW8bit) < 2
