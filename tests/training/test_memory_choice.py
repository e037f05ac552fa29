"""memory=auto on a GPU, kept by the run; strategies that change on resuming; the peak beside its prediction."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace

import pytest
import torch
from tiny_runs import assert_same_run, tiny_config

from svtoolkit.config import CheckpointConfig, MemoryStrategyConfig, ModelConfig, PlannedConfig, RecomputeNormConfig
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.planner.stopwatch import Stopwatch
from svtoolkit.planning import profiles
from svtoolkit.planning.assembly import build_network, for_crops
from svtoolkit.planning.automatic import ExpectedPeak, choose_way, expect_peak
from svtoolkit.planning.cards import GIB, Card
from svtoolkit.planning.unpredictable import UnpredictableError
from svtoolkit.runs.exp_dir import CHECKPOINTS, check_run, write_config
from svtoolkit.runs.full_state import load_latest_state
from svtoolkit.training import experiment as experiment_module
from svtoolkit.training import memory_choice
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.memory_choice import card_of, choose_memory, text_of, words_of
from svtoolkit.training.peak_check import PeakCheck
from svtoolkit.training.run_state import UnfitStateError

CPU = torch.device("cpu")
ROOMY = Card("roomy", 4.0, 0.001, 100, 1.0, 1.0, 2.0, ("fp32", "fp16"))
CHECKPOINT = CheckpointConfig("checkpoint")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SVT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(profiles, "count_cores", lambda: 1)
        yield


def needs(config, crops: int, share: int = 8) -> dict[str, float]:
    """Bytes that each strategy needs on the card, for so many crops at once."""
    found = {}
    for memory in (MemoryStrategyConfig("store"), CHECKPOINT):
        peak = expect_peak(replace(config, memory=memory), ROOMY, share, 18, 1, crops)
        found[memory.strategy] = sum(peak) + 0.07 * peak.tensors + ROOMY.context_gib * GIB
    return found


def test_the_quickest_that_fits_is_chosen(tmp_path):
    config = tiny_config(tmp_path, tmp_path, data__crop_frames=200)
    sizes = needs(config, 8)
    assert sizes["checkpoint"] < sizes["store"]
    assert choose_way(config, ROOMY, 8, 18, 1, 8).memory == MemoryStrategyConfig("store")
    small = replace(ROOMY, gib=0.999 * sizes["store"] / GIB)
    way = choose_way(config, small, 8, 18, 1, 8)
    assert way.memory.strategy != "store"
    assert way.peak_bytes <= small.memory_bytes
    assert choose_way(config, replace(ROOMY, gib=0.0012), 8, 18, 1, 8).peak_bytes > 0.0012 * GIB  # nothing: the least


def test_a_free_micro_batch_is_large_enough_for_batch_norm(tmp_path):
    config = tiny_config(tmp_path, tmp_path, data__crop_frames=200)
    stored = needs(config, 16, 128)["store"]  # of half as many as BatchNorm should have
    way = choose_way(config, replace(ROOMY, gib=1.05 * stored / GIB), 128, 18, 1, None)
    assert (way.micro_batch >= 32) == (way.memory.strategy != "store")
    assert choose_way(config, ROOMY, 128, 18, 1, None).memory.strategy == "store"


def test_reversible_networks_keep_their_arithmetic(tmp_path):
    config = tiny_config(tmp_path, tmp_path)
    config.model = ModelConfig("revnet_tiny", embedding_dim=16)
    config.memory = MemoryStrategyConfig("auto", exact=False, exact_bits=12)
    way = choose_way(config, replace(ROOMY, gib=0.002), 8, 18, 1, 8)
    assert (way.memory.exact, way.memory.exact_bits) == (False, 12)


def test_what_was_asked_for_and_the_cpu_are_left_alone(tmp_path):
    config = tiny_config(tmp_path, tmp_path)
    assert choose_memory(config, 8, 18, None, ALONE, None, None) == (MemoryStrategyConfig(), None)
    config.memory = CHECKPOINT
    assert choose_memory(config, 8, 18, ROOMY, ALONE, None, None) == (CHECKPOINT, None)
    assert card_of(CPU) is None


def test_an_optimizer_that_cannot_be_predicted_leaves_auto(tmp_path, monkeypatch):
    def refuse(*arguments, **settings):
        raise UnpredictableError("optim=lbfgs", "its update depends on values")

    monkeypatch.setattr("svtoolkit.planning.automatic.plan_training", refuse)
    config = tiny_config(tmp_path, tmp_path)
    assert choose_memory(config, 8, 18, ROOMY, ALONE, None, 8) == (MemoryStrategyConfig(), None)


def test_a_run_keeps_what_it_began_with_on_whatever_card(speech, tmp_path, monkeypatch):
    """Chosen on a small card, resumed on the CPU; the run is that of the strategy it was given by name."""
    config = tiny_config(speech, tmp_path / "auto", trainer__epochs=1)
    with monkeypatch.context() as patch:
        way = choose_way(replace(config, data=replace(config.data, crop_frames=200)), ROOMY, 8, 18, 1, 4)
        patch.setattr(memory_choice, "choose_way", lambda *arguments: replace(way, memory=CHECKPOINT))
        patch.setattr(experiment_module, "card_of", lambda device: ROOMY)
        patch.setattr(experiment_module, "expected_peak", lambda *arguments: None)
        assert train(config) is None
    _, state = load_latest_state(tmp_path / "auto" / CHECKPOINTS)
    assert state["facts"]["memory"] == text_of(CHECKPOINT)
    resumed = Experiment(config, state=state)
    assert resumed.config.memory == CHECKPOINT
    named = tiny_config(speech, tmp_path / "named", trainer__epochs=1, trainer__micro_batch=4, memory=CHECKPOINT)
    assert train(named) is None
    assert_same_run(tmp_path / "auto", tmp_path / "named")


class OtherRank(World):
    """One that is told what the first process has found."""

    is_first = False

    def all_gather(self, rows):
        assert rows == []
        return [[1.0, 2.0]]


def test_measured_times_are_those_of_the_first_process_and_of_the_beginning(tmp_path, monkeypatch):
    asked = PlannedConfig("planned", clock="measured", times=2.0)
    config = tiny_config(tmp_path, tmp_path, memory=asked)
    found, _ = choose_memory(config, 8, 18, None, ALONE, None, None)
    assert replace(found, seconds=None) == asked
    assert all(seconds >= 0 for seconds in found.seconds)
    assert choose_memory(config, 8, 18, None, OtherRank(), None, None)[0].seconds == [1.0, 2.0]
    monkeypatch.setattr(Stopwatch, "now", lambda self: pytest.fail("it was measured again"))
    state = {"facts": {"memory": text_of(found)}}
    assert choose_memory(config, 8, 18, None, ALONE, state, None) == (found, None)
    network = build_network(config.model, config.features.num_bins)
    crops = for_crops(found, 200, config.features.num_bins, "fp32")
    assert apply_strategy(network, **asdict(crops)) == "planned"


def test_a_run_with_measured_times_resumes_with_its_plan(speech, tmp_path, monkeypatch):
    asked = PlannedConfig("planned", clock="measured", times=2.0)
    config = tiny_config(speech, tmp_path, trainer__epochs=1, memory=asked)
    assert train(config) is None
    _, state = load_latest_state(tmp_path / CHECKPOINTS)
    monkeypatch.setattr(Stopwatch, "now", lambda self: pytest.fail("it was measured again"))
    resumed = Experiment(config, state=state)
    assert replace(resumed.config.memory, seconds=None) == asked
    assert text_of(resumed.config.memory) == state["facts"]["memory"]


def test_with_other_settings_times_are_measured_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_choice, "_measured_seconds", lambda *arguments: [3.0])
    asked = PlannedConfig("planned", clock="measured", times=2.0)
    config = tiny_config(tmp_path, tmp_path, memory=asked)
    for before in (replace(asked, times=1.5, seconds=[1.0]), MemoryStrategyConfig("store")):
        state = {"facts": {"memory": text_of(before)}}
        assert choose_memory(config, 8, 18, None, ALONE, state, None)[0].seconds == [3.0]


@pytest.mark.parametrize("text", ["", "{}", '{"strategy": "magic"}', '{"strategy": "store", "more": 1}', 3, "[]"])
def test_a_strategy_that_there_is_none_of_does_not_fit(text, tmp_path):
    with pytest.raises(UnfitStateError, match="its memory strategy is"):
        choose_memory(tiny_config(tmp_path, tmp_path), 8, 18, None, ALONE, {"facts": {"memory": text}}, None)


def test_states_of_older_versions_have_what_auto_was(tmp_path):
    config = tiny_config(tmp_path, tmp_path)
    for facts in ({}, {"memory": text_of(MemoryStrategyConfig())}):
        assert choose_memory(config, 8, 18, ROOMY, ALONE, {"facts": facts}, None) == (MemoryStrategyConfig(), None)


def test_a_strategy_is_told_as_it_is_chosen():
    assert words_of(RecomputeNormConfig("recompute_norm", expansions=True)) == (
        "memory=recompute_norm memory.expansions=true"
    )


def with_state(tmp_path, memory):
    config = tiny_config(tmp_path / "data", tmp_path / "exp", memory=memory)
    (tmp_path / "exp" / CHECKPOINTS).mkdir(parents=True)
    write_config(config)
    (tmp_path / "exp" / CHECKPOINTS / "state-0000000001.pt").touch()
    return config


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (MemoryStrategyConfig(), CHECKPOINT),
        (CHECKPOINT, CheckpointConfig("checkpoint", segments="sqrt")),
        (RecomputeNormConfig("recompute_norm", expansions=True), MemoryStrategyConfig("store")),
    ],
)
def test_exact_strategies_may_change_when_a_run_is_resumed(before, after, tmp_path):
    config = with_state(tmp_path, before)
    check_run(replace(config, memory=after))


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        (MemoryStrategyConfig("store"), MemoryStrategyConfig("stash8"), "memory.strategy"),
        (MemoryStrategyConfig("stash8"), MemoryStrategyConfig("store"), "memory.strategy"),
        (MemoryStrategyConfig("store"), MemoryStrategyConfig("store", exact=False), "memory.exact"),
    ],
)
def test_others_are_refused(before, after, key, tmp_path):
    config = with_state(tmp_path, before)
    with pytest.raises(UserError, match=rf"another configuration: {key} was"):
        check_run(replace(config, memory=after))


@pytest.mark.parametrize(("measured", "level"), [(0.95, "INFO"), (1.25, "INFO"), (1.4, "WARNING"), (0.8, "WARNING")])
def test_the_peak_is_told_once_beside_its_prediction(measured, level, caplog):
    caplog.set_level(logging.INFO)
    check = PeakCheck(ExpectedPeak(1.0 * GIB, 0.2 * GIB), lambda device: round(measured * GIB))
    for _ in range(6):
        check.look(CPU)
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().startswith(f"peak memory {measured:.2f} GiB, predicted 1.00 to 1.20")


def test_without_a_prediction_nothing_is_measured():
    check = PeakCheck(None, lambda device: pytest.fail("it measures"))
    for _ in range(6):
        check.look(CPU)
