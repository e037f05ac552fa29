"""compress=trace_norm: stage one under a penalty, stage two from the truncated SVD, resumed anywhere bit for bit."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from tiny_runs import assert_same_run, differences, fail_after, read_records, tiny_config

from svtoolkit import composition
from svtoolkit.checkpoints.released import read_released
from svtoolkit.cli import main
from svtoolkit.compression.factors import ranks_of, with_ranks
from svtoolkit.config import TwoStageConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.runs.full_state import load_latest_state, read_verified
from svtoolkit.training.dry_run import dry_run
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.initialisation import read_start
from svtoolkit.training.launch import launch
from svtoolkit.training.setup import seed_everything
from svtoolkit.training.stage_settings import CLASS_HEAD

LAYERS = ["embedding", "stages.1.0.conv2", CLASS_HEAD]


def two_stages(name: str = "trace_norm", **changes):
    return TwoStageConfig(
        **{"name": name, "strength": 0.05, "layers": LAYERS, "min_values": 1, "variance": 0.6} | changes
    )


@pytest.fixture(scope="module")
def finished(speech, tmp_path_factory):
    """exp_dir of a run of one epoch in each stage."""
    config = tiny_config(speech, tmp_path_factory.mktemp("two_stages") / "whole", compress=two_stages())
    assert train(config) is None
    return config


def records_of(config, kind):
    return [record for record in read_records(Path(config.exp_dir)) if record["kind"] == kind]


def test_stage_two_is_smaller_and_goes_on_with_the_schedule(finished, speech, tmp_path):
    first, second = records_of(finished, "epoch")
    assert (first["stage"], second["stage"]) == (1, 2)
    assert second["network_parameters"] < first["network_parameters"]
    for layer in LAYERS:
        assert 0 <= second[f"nu.{layer}"] < first[f"nu.{layer}"] <= 1
    steps = records_of(finished, "step")
    schedule = Experiment(tiny_config(speech, tmp_path)).schedule
    assert [step["lr"] for step in steps] == [schedule.learning_rate(number) for number in range(26)]
    assert steps[13]["loss"] < steps[0]["loss"]


@pytest.mark.parametrize("step", [7, 13, 20])
def test_stopped_anywhere_it_ends_the_same(step, finished, speech, tmp_path, monkeypatch):
    config = tiny_config(speech, tmp_path / "exp", compress=two_stages())
    with monkeypatch.context() as patch:
        fail_after(patch, step)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(Path(config.exp_dir), Path(finished.exp_dir))


def test_the_state_of_parameters_that_stay_is_carried_over(speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp", "adamw_8bit", compress=two_stages(), trainer__keep_states=9)
    assert train(config) is None
    states = Path(config.exp_dir) / "checkpoints"
    state = read_verified(states / "state-0000000013.pt")
    second = Experiment(config, state=state)
    second.restore()
    assert second.stage.number == 2
    before = by_name(Experiment(config).step, state["optimizer"]["state"])
    after = by_name(second.step, second.step.optimizer.state_dict()["state"])
    factors = {name for name in before if ("low_rank" in name and name.endswith("weight")) or name.startswith("head.")}
    assert len(factors) == 6
    assert set(after) == set(before) - factors  # which begin anew
    for name in after:
        assert differences(after[name], before[name]) == []


def test_two_processes_go_through_both_stages_together(speech, tmp_path):
    """The second one must not look for the state of stage one before the first has written it."""
    config = tiny_config(speech, tmp_path, compress=two_stages(), trainer__devices=2, validation__speakers=0)
    assert launch(config) is None
    first, second = records_of(config, "epoch")
    assert (first["stage"], second["stage"]) == (1, 2)
    assert second["network_parameters"] < first["network_parameters"]


def by_name(step, state):
    """The state of an optimizer by the names of its parameters."""
    names = {
        id(p): f"{part}.{name}" for part in ("network", "head") for name, p in getattr(step, part).named_parameters()
    }
    numbered = [parameter for group in step.optimizer.param_groups for parameter in group["params"]]
    return {names[id(parameter)]: state[number] for number, parameter in enumerate(numbered) if number in state}


def test_the_penalty_takes_the_place_of_the_weight_decay(speech, tmp_path):
    """One step of SGD on gradients of zero: factors shrink by lr x strength, all others by lr x weight_decay."""
    config = tiny_config(speech, tmp_path, compress=two_stages(), optim__weight_decay=0.01)
    step = Experiment(config).step
    factors = {id(parameter) for parameter in step.penalty.parameters}
    assert len(factors) == 6
    before = [parameter.detach().clone() for parameter in step.parameters]
    for parameter in step.parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in step.optimizer.param_groups:
        group |= {"lr": 0.1, "momentum": 0.0, "nesterov": False}
    assert step._update()
    for parameter, old in zip(step.parameters, before, strict=True):
        torch.testing.assert_close(parameter.detach(), (1 - 0.1 * (0.05 if id(parameter) in factors else 0.01)) * old)


def test_stage_one_begins_with_the_weights_of_a_run_without_it(speech, tmp_path):
    config = tiny_config(speech, tmp_path, compress=two_stages())
    networks = []
    for each in (config, tiny_config(speech, tmp_path)):
        seed_everything(each)
        networks.append(Experiment(each).step.network)
    network, plain = networks
    whole = with_ranks(network.state_dict(), {})
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(whole[name], tensor)
    u, v = network.get_submodule("embedding").factors
    trace_norm = torch.linalg.svdvals(plain.embedding.weight.detach()).sum()
    torch.testing.assert_close((u.detach().square().sum() + v.detach().square().sum()) / 2, trace_norm)


def test_a_strong_penalty_lowers_the_trace_norm_where_l2_does_not(speech, tmp_path):
    nu = {}
    for name in ("trace_norm", "l2"):
        config = tiny_config(
            speech, tmp_path / name, compress=two_stages(name, strength=0.3, transition=2), validation__speakers=0
        )
        assert train(config) is None
        nu[name] = records_of(config, "epoch")[-1]["nu.stages.1.0.conv2"]
        assert records_of(config, "epoch")[-1]["stage"] == 1
    assert nu["trace_norm"] < nu["l2"] - 0.05


def test_averaging_takes_the_epochs_of_the_last_stage(finished, tmp_path):
    assert main(["average", finished.exp_dir, f"out={tmp_path / 'model'}"]) == 0
    network, description = read_released(tmp_path / "model")
    state = load_latest_state(f"{finished.exp_dir}/checkpoints")[1]
    assert description.model["ranks"] == ranks_of(state["network"])
    assert description.training["epochs_averaged"] == [2]
    assert sum(each.numel() for each in network.parameters()) == records_of(finished, "epoch")[1]["network_parameters"]


def test_the_averaged_run_is_fine_tuned_at_its_ranks(finished, speech, tmp_path):
    exp_dir = tmp_path / "exp"
    shutil.copytree(finished.exp_dir, exp_dir)
    assert main(["average", str(exp_dir)]) == 0
    config = composition.load(
        "train", [f"init_from={exp_dir}", f"data.train={speech}", f"exp_dir={tmp_path / 'tuned'}"]
    )
    assert config.compress.name == "none"
    ranks = read_released(exp_dir / "model")[1].model["ranks"]
    assert config.model.ranks == ranks
    config = replace(finished, exp_dir=str(tmp_path / "tuned"), init_from=str(exp_dir), compress=config.compress)
    config = replace(config, model=replace(config.model, ranks=ranks), init_head="keep")
    start, network = read_start(config), read_released(exp_dir / "model")[0]
    assert start.head["weight"].shape == (18, 16)  # whole
    for name, tensor in network.state_dict().items():
        assert torch.equal(start.network[name], tensor)


def test_a_dry_run_is_of_stage_one(speech, tmp_path, caplog):
    caplog.set_level("INFO", "svtoolkit")
    whole = tiny_config(speech, tmp_path, validation__speakers=0)
    two = replace(whole, compress=two_stages(layers=["embedding"]))
    plain, first = (dry_run(config) for config in (whole, two))
    assert first.steps == plain.steps
    assert first.disk_bytes > plain.disk_bytes  # two factors of full rank in the place of a matrix


def test_a_budget_is_kept(speech, tmp_path):
    config = tiny_config(speech, tmp_path, validation__speakers=0, compress=two_stages(variance=None, parameters=0.9))
    assert train(config) is None
    total = sum(parameter.numel() for parameter in build_model(num_bins=24, **asdict(config.model)).parameters())
    assert records_of(config, "epoch")[1]["network_parameters"] <= 0.9 * total


@pytest.mark.parametrize(
    ("changes", "compress", "message"),
    [
        ({}, {"strength": -1.0}, r"compress.strength is -1.0, expected 0 or more"),
        ({}, {"transition": 3}, r"compress.transition is 3, expected 1 to trainer.epochs=2; to begin with stage two"),
        ({"trainer__epochs": 1}, {}, r"trainer.epochs is 1, and two stages need two epochs or more"),
        ({}, {"parameters": 0.5}, r"compress.variance and compress.parameters are both given"),
        ({}, {"variance": 0.0}, r"compress.variance is 0.0, expected a share above 0, at most 1"),
        ({}, {"variance": None, "parameters": 0.0}, r"compress.parameters is 0.0, expected a number above 0"),
        ({"model__ranks": {"embedding": 3}}, {}, r"compress=trace_norm chooses ranks itself, and model.ranks"),
        ({"loss__rank": 3}, {}, r"compress=trace_norm chooses ranks itself, and model.ranks or loss.rank gives some"),
        ({}, {"layers": ["embeding"]}, r"compress.layers names 'embeding', which no linear layer"),
        ({}, {"layers": [], "min_values": 10**6}, r"no such layer has a matrix of compress.min_values=1000000 values"),
    ],
)
def test_refusals(changes, compress, message, speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp", compress=two_stages(**compress), **changes)
    with pytest.raises(UserError, match=message):
        train(config)
