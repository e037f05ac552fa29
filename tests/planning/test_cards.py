"""Cards, and the roofline: recomputed by hand for a few operations, and beside the batches that were found on 11 GB."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.config import CheckpointConfig, MemoryPredictionConfig, MemoryStrategyConfig, ResNetConfig, SGDConfig
from svtoolkit.errors import UserError
from svtoolkit.memory.operations import Work, WorkLog
from svtoolkit.planning.cards import CARDS, GIB, Card, card_at_hand, find_card
from svtoolkit.planning.step_profile import profiler_of

PUBLISHED = {"resnet34": 154}
"""Largest batches of 200 frames on a 2080 Ti (Liu & Qian, table V)."""


@pytest.mark.parametrize(("name", "found"), PUBLISHED.items())
def test_the_largest_batch_on_11_gb_is_close_below_the_published_one(name, found):
    asked = MemoryPredictionConfig(model=ResNetConfig(name), optim=SGDConfig(), device="cpu")
    card = find_card("2080ti")
    with profiler_of(asked) as profiler:
        step = profiler.profile_step(MemoryStrategyConfig("store"), "fp32")
        state = profiler.profile_update(asked.optim).state

    def total(crops: int) -> float:
        tensors = step.peak_bytes(crops) + state
        return tensors + sum(card.taken(tensors, crops * step.largest_convolution).values())

    largest = max(crops for crops in range(1, 400) if total(crops) <= card.memory_bytes)
    assert 0.97 * found <= largest <= found


def test_an_operation_takes_as_long_as_its_arithmetic_or_its_memory():
    card = Card("mine", 1, 0.1, 100, 2.0, 4.0, 8.0, ("fp32",), launch=1e-6, sustained={
        "convolution 32": 0.5, "product 32": 1.0, "convolution 16": 1.0, "product 16": 1.0, "bytes": 0.5,
    })  # fmt: skip
    arithmetic = Work("convolution 32", 1e9, 1e9, 0, 8)
    memory = Work("other", 0, 0, 50e6, 50e6)
    assert card.seconds({arithmetic: 2}, 3) == pytest.approx(2 * (4e9 / 2e12 + 1e-6))
    assert card.seconds({memory: 1}, 1) == pytest.approx(100e6 / 50e9 + 1e-6)
    assert card.seconds({arithmetic: 1, memory: 1}, 1) == pytest.approx(2e9 / 2e12 + 100e6 / 50e9 + 2e-6)


def test_work_is_counted_forward_and_backward_and_views_are_free():
    with FakeTensorMode():
        x = torch.randn(1_000_003, 3, 8, 10)
        convolution = torch.nn.Conv2d(3, 5, 3, padding=1, bias=False)
        with WorkLog(1_000_003) as log:
            y = convolution(x)
            y.view(-1, 10).t()
            forward = log.take()
            y.sum().backward()
            backward = log.take()
    flops = 2 * 3 * 5 * 9 * 80
    ((work, times),) = forward.items()
    assert times == 1
    assert work == Work("convolution 32", 0, flops, 3 * 5 * 9 * 4, 4 * 80 * (3 + 5))
    assert sum(each.flops_per_crop * count for each, count in backward.items()) == flops  # x needs no gradient
    assert log.largest_convolution == 4 * 80 * (3 + 5)


def test_recomputing_costs_more_and_half_precision_less():
    asked = MemoryPredictionConfig(frames=64, model=ResNetConfig("resnet10"), optim=SGDConfig(), device="cpu")
    card = find_card("2080ti")
    with profiler_of(asked) as profiler:
        stored, checkpointed = (
            profiler.profile_step(memory, "fp32")
            for memory in (MemoryStrategyConfig("store"), CheckpointConfig("checkpoint"))
        )
        half = profiler.profile_step(MemoryStrategyConfig("store"), "fp16")
    times = [card.seconds(profile.counted, 256) for profile in (half, stored, checkpointed)]
    assert times[0] < times[1]
    assert 1.15 * times[1] < times[2] < 1.5 * times[1]


@pytest.mark.parametrize(("given", "row"), [("2080Ti", "2080ti"), ("RTX 3060".removeprefix("RTX "), "3060")])
def test_a_card_is_found_as_it_is_written(given, row):
    assert find_card(given) is CARDS[row]
    assert find_card(given, 8).memory_bytes == 8 * GIB


def test_what_is_no_card_is_refused():
    with pytest.raises(UserError, match=r"gpu is '2090', expected one of gtx750, .* gib="):
        find_card("2090")
    with pytest.raises(UserError, match=r"gib is 0.1, expected more than the 0.45 GiB"):
        find_card("2080ti", 0.1)


@pytest.mark.parametrize(
    ("name", "capability", "row"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), "2080ti"),
        ("NVIDIA GeForce RTX 3060", (8, 6), "3060"),
        ("NVIDIA A100-SXM4-40GB", (8, 0), "a100"),
        ("NVIDIA H200", (9, 0), "h200"),
        ("Tesla T4", (7, 5), "2080ti"),
        ("NVIDIA L4", (8, 9), "3060"),
        ("GeForce GTX 1080", (6, 1), "gtx750"),
    ],
)
def test_the_gpu_at_hand_keeps_its_own_memory(name, capability, row):
    card = card_at_hand(name, 5 * GIB, capability)
    assert card.memory_bytes == 5 * GIB
    assert card.precisions == CARDS[row].precisions
    assert card.bandwidth == CARDS[row].bandwidth


def test_no_card_is_unreal():
    for card in CARDS.values():
        assert 0 < card.context_gib < card.gib / 4
        assert card.bandwidth > 5
        assert card.fp32 <= card.convolution32 <= card.half
        assert card.precisions[0] == "fp32"
