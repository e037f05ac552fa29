"""Ways to train on a card: what fits, the micro-batch, the order; beside predictions that were made one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from svtoolkit.config import (
    CheckpointConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    ModelConfig,
    RecomputeNormConfig,
    ResNetConfig,
    SGD8bitConfig,
    SGDConfig,
)
from svtoolkit.memory.registry import STRATEGIES
from svtoolkit.planning import profiles
from svtoolkit.planning.cards import CARDS, GIB, Card, find_card
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.profiles import NOT_PLANNED, profile_or_recall, strategies_tried
from svtoolkit.planning.training_plan import peak_of, plan_training

OPTIMS = [SGDConfig(), SGD8bitConfig()]
QUESTION = MemoryPredictionConfig(
    frames=24, num_bins=16, num_classes=50, device="cpu", model=ResNetConfig("resnet10", base_width=8)
)
TINY = Card("tiny", 0.02, 0.001, 100, 1.0, 1.0, 2.0, ("fp32", "fp16"))
MEMORIES = [MemoryStrategyConfig("store"), CheckpointConfig("checkpoint")]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SVT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(profiles, "count_cores", lambda: 1)
        yield


def plan(share: int = 64, card: Card = TINY, **changes):
    return plan_training(QUESTION, card, share, optims=OPTIMS, **{"memories": MEMORIES, **changes})


def test_every_row_of_strategies_is_tried_but_those_that_no_profile_knows():
    tried = strategies_tried()
    assert {each.strategy for each in tried} == set(STRATEGIES.rows) - NOT_PLANNED
    assert tried[0] == MemoryStrategyConfig("store")
    assert RecomputeNormConfig("recompute_norm", expansions=True) in tried
    assert [each.segments for each in tried if isinstance(each, CheckpointConfig)] == ["blocks", "sqrt", "recursive"]


def test_what_fits_is_sorted_by_time_and_has_the_largest_divisor():
    found = plan()
    assert 0 < len(found.ways) <= found.tried == len(MEMORIES) * 2 * len(OPTIMS)
    times = [round(way.relative, 2) for way in found.ways]
    assert times == sorted(times)
    question = profile_or_recall(QUESTION, MEMORIES, ("fp32", "fp16"), OPTIMS)
    for way in found.ways:
        assert 64 % way.micro_batch == 0
        assert way.peak_bytes <= TINY.memory_bytes
        step, update = question.step(way.memory, way.precision), question.update(way.optim)
        larger = [size for size in (1, 2, 4, 8, 16, 32, 64) if size > way.micro_batch]
        for size in larger:
            assert sum(peak_of(step, update, TINY, size, accumulates=size < 64).values()) > TINY.memory_bytes


def test_the_peak_is_that_of_the_step_with_what_is_no_tensor():
    found = plan(share=64, card=replace(TINY, gib=1.0), memories=MEMORIES[:1], precisions=("fp32",))
    way = next(way for way in found.ways if way.optim == OPTIMS[0])
    step = predict_memory(replace(QUESTION, optim=OPTIMS[0], batch_size=64), growth=False).whole
    waveforms = 64 * 4 * 160 * QUESTION.frames
    tensors = sum(size for kind, size in way.peak.items() if kind not in ("context", "workspace", "slack"))
    assert tensors == pytest.approx(step.peak_bytes + waveforms, rel=0.02)  # and the copy of BatchNorm's statistics
    assert way.peak["context"] == 0.001 * GIB
    assert way.peak["slack"] == pytest.approx(0.07 * tensors)
    assert way.relative == pytest.approx(1.0)


def test_micro_batches_of_a_step_hold_the_gradients_of_those_before():
    whole, parts = (
        plan(share=share, card=replace(TINY, gib=1.0), micro_batch=4, memories=MEMORIES[:1], precisions=("fp32",))
        for share in (4, 8)
    )
    assert parts.ways[0].peak_bytes > whole.ways[0].peak_bytes
    assert parts.ways[0].seconds > 1.5 * whole.ways[0].seconds


def test_where_nothing_fits_the_least_is_named_and_the_card_that_holds_it():
    found = plan(card=replace(TINY, gib=0.002))
    assert found.ways == []
    assert found.least.micro_batch == 1
    assert found.least.peak_bytes > found.card.memory_bytes
    assert found.card_that_holds is CARDS["gtx750"]
    assert plan(card=replace(TINY, gib=200.0)).card_that_holds is None


def test_a_batch_norm_of_the_batch_needs_two_crops():
    question = replace(QUESTION, model=ModelConfig("ecapa_tdnn_c512"), frames=30)
    found = plan_training(
        question, replace(TINY, gib=0.01), 4, optims=OPTIMS[:1], memories=MEMORIES[:1], precisions=("fp32",)
    )
    assert found.least.micro_batch == 2


def test_a_network_is_not_under_what_does_not_suit_it():
    found = plan(memories=[*MEMORIES, MemoryStrategyConfig("reversible")], card=find_card("3060"))
    assert {way.memory.strategy for way in found.ways} == {"store", "checkpoint"}


def test_what_was_profiled_is_recalled(monkeypatch):
    plan()
    monkeypatch.setattr(profiles, "_profile", lambda part: pytest.fail("it was profiled again"))
    plan(share=8, card=find_card("2080ti", 0.6))
