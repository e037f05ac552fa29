"""trainer.ema: the moving average of the weights, validated, saved, resumed and released."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from tiny_runs import assert_same_run, fail_after, read_records, tiny_config
from torch import nn

from svtoolkit.checkpoints.released import read_released
from svtoolkit.cli import main
from svtoolkit.composition.train_words import words_of_run
from svtoolkit.config import LossConfig, MemoryPredictionConfig, PlanConfig, ResNetConfig, TwoStageConfig
from svtoolkit.errors import UserError
from svtoolkit.optim import WeightAverage
from svtoolkit.planning.cards import find_card
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.micro_batch import step_of
from svtoolkit.planning.network_plans import fitting_networks
from svtoolkit.planning.profiler import profiler_of
from svtoolkit.runs.epoch_weights import load_epoch_weights, weights_path
from svtoolkit.runs.full_state import load_latest_state, read_verified
from svtoolkit.training import validation
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.launch import launch
from svtoolkit.training.settings import check_settings

DECAY = 0.8


@pytest.fixture(scope="module")
def averaged(speech, tmp_path_factory) -> Path:
    """exp_dir of a finished tiny run that keeps a moving average."""
    exp_dir = tmp_path_factory.mktemp("ema") / "whole"
    assert train(tiny_config(speech, exp_dir, trainer__ema=DECAY)) is None
    return exp_dir


def average_in(exp_dir, step=26):
    return read_verified(exp_dir / "checkpoints" / f"state-{step:010d}.pt")["ema"]


def test_the_formula():
    """Against the sum written out: the weight of a value is (1 - d) of its step times d of all later ones."""
    network = nn.BatchNorm1d(2, affine=False)
    values = torch.tensor([[4.0, -1.0], [2.0, 8.0], [3.0, 5.0], [-7.0, 1.0], [0.5, 9.0]])
    network.running_mean.copy_(values[0])
    average = WeightAverage(network, 0.25)
    for value in values[1:]:
        network.running_mean.copy_(value)
        network.num_batches_tracked += 1
        average.update(network)
    decays = [1 / 10, 2 / 11, 3 / 12, 0.25]
    expected = values[0]
    for decay, value in zip(decays, values[1:], strict=True):
        expected = decay * expected + (1 - decay) * value
    assert torch.allclose(average.weights["running_mean"], expected, rtol=1e-6)
    assert average.weights.keys() == {"running_mean", "running_var"}
    assert average.updates == 4


def test_it_is_in_float32_whatever_the_weights_are_and_they_come_back_bit_for_bit():
    network = nn.Linear(3, 2).double()
    network.bias.requires_grad_(False)  # frozen: there is nothing to average
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    average = WeightAverage(network, 0.9)
    assert {name: tensor.dtype for name, tensor in average.weights.items()} == {"weight": torch.float32}
    average.weights["weight"].fill_(3.0)
    with average.in_place_of_weights(network):
        assert (network.weight == 3).all()
        assert network.bias.equal(before["bias"])
    assert network.weight.equal(before["weight"])
    assert network.weight.dtype == torch.float64


def test_a_run_averages_the_weights_of_all_its_steps(speech, tmp_path, averaged):
    """Of states after every step the average is computed again, in float64."""
    config = tiny_config(
        speech, tmp_path, trainer__ema=DECAY, trainer__checkpoint_steps=1, trainer__keep_states=99, trainer__epochs=1
    )
    first = {name: tensor.double() for name, tensor in Experiment(config).step.network.state_dict().items()}
    assert train(config) is None
    expected = {name: first[name] for name in average_in(tmp_path, 13)["weights"]}
    for step in range(13):
        state = read_verified(tmp_path / "checkpoints" / f"state-{step + 1:010d}.pt")
        decay = min(DECAY, (1 + step) / (10 + step))
        expected = {
            name: decay * tensor + (1 - decay) * state["network"][name].double() for name, tensor in expected.items()
        }
        assert state["ema"]["updates"] == step + 1
    found = average_in(tmp_path, 13)["weights"]
    assert any(name.endswith("running_mean") for name in found)
    for name, tensor in expected.items():
        assert torch.allclose(found[name].double(), tensor, rtol=1e-4, atol=1e-6), name


def test_it_changes_nothing_of_what_is_trained(averaged, finished):
    for epoch in (1, 2):
        ours, theirs = (weights_path(run / "checkpoints", epoch).read_bytes() for run in (averaged, finished))
        assert ours == theirs
    records = [
        [{key: value for key, value in record.items() if not key.startswith("ema_")} for record in read_records(run)]
        for run in (averaged, finished)
    ]
    assert records[0] == records[1]


def test_both_are_validated(speech, averaged, tmp_path):
    epochs = [record for record in read_records(averaged) if record["kind"] == "epoch"]
    assert {"validation_eer", "ema_validation_eer", "ema_validation_min_dcf"} <= epochs[-1].keys()
    config = tiny_config(speech, tmp_path)
    experiment = Experiment(config, state=load_latest_state(averaged / "checkpoints")[1])
    network = experiment.step.network
    state = load_latest_state(averaged / "checkpoints")[1]
    network.load_state_dict(state["network"] | state["ema"]["weights"])
    run, _ = validation.build_validation(config, experiment.data.held_out, experiment.step)
    assert run()["validation_eer"] == epochs[-1]["ema_validation_eer"]
    assert run()["validation_min_dcf"] == epochs[-1]["ema_validation_min_dcf"]


@pytest.mark.parametrize("optim", ["sgd", "adamw_8bit"])
def test_stopped_anywhere_it_ends_the_same(optim, speech, tmp_path, averaged, monkeypatch):
    whole = averaged
    if optim != "sgd":
        whole = tmp_path / "whole"
        assert train(tiny_config(speech, whole, optim, trainer__ema=DECAY)) is None
    config = tiny_config(speech, tmp_path / "exp", optim, trainer__ema=DECAY)
    with monkeypatch.context() as patch:
        fail_after(patch, 8)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(Path(config.exp_dir), whole)


def test_a_step_that_is_skipped_is_not_averaged(speech, tmp_path, monkeypatch):
    experiment = Experiment(tiny_config(speech, tmp_path, trainer__ema=DECAY, validation__speakers=0))
    loop, batches = experiment.loop, experiment.batches()
    monkeypatch.setattr(experiment.step, "_update", lambda: False)
    monkeypatch.setattr(loop, "ends_at", 2)
    history = type("History", (), {"add": lambda *_: None, "sync": lambda *_: None})()
    loop.run(batches, history)
    batches.close()
    assert (loop.finished_steps, loop.average.updates) == (2, 0)


def test_two_processes_keep_the_average_of_one(speech, tmp_path):
    """Without BatchNorm's statistics, which are of a micro-batch: weights agree up to rounding."""
    changes = {"trainer__ema": DECAY, "trainer__micro_batch": 4, "validation__speakers": 0, "trainer__epochs": 1}
    alone = tiny_config(speech, tmp_path / "alone", **changes)
    assert train(alone) is None
    together = tiny_config(speech, tmp_path / "together", trainer__devices=2, **changes)
    assert launch(together) is None
    steps = [load_latest_state(Path(config.exp_dir) / "checkpoints")[0] for config in (alone, together)]
    ours, theirs = (
        average_in(Path(config.exp_dir), step) for config, step in zip((alone, together), steps, strict=True)
    )
    assert ours["updates"] == theirs["updates"] == steps[0]
    for name, tensor in ours["weights"].items():
        if "running" not in name:
            assert torch.allclose(tensor, theirs["weights"][name], rtol=1e-3, atol=2e-4), name


def test_stage_two_begins_its_own(speech, tmp_path):
    compress = TwoStageConfig("trace_norm", strength=0.05, layers=["embedding"], min_values=1, variance=0.6)
    config = tiny_config(speech, tmp_path, compress=compress, trainer__ema=DECAY, validation__speakers=0)
    assert train(config) is None
    step, state = load_latest_state(tmp_path / "checkpoints")
    assert state["ema"]["updates"] == step // 2
    assert {name: tensor.shape for name, tensor in state["ema"]["weights"].items()} == {
        name: state["network"][name].shape for name in state["ema"]["weights"]
    }
    assert main(["average", str(tmp_path), "choose=ema"]) == 0
    network, _ = read_released(tmp_path / "model")
    assert any("low_rank" in name for name, _ in network.named_parameters())


def test_it_is_released(averaged, tmp_path, capsys):
    assert main(["average", str(averaged), "choose=ema", f"out={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"the moving average after step 26 -> {tmp_path}"
    weights = load_epoch_weights(tmp_path / "model.safetensors")
    average = average_in(averaged)["weights"]
    newest = load_epoch_weights(weights_path(averaged / "checkpoints", 2))
    assert all(weights[name].equal(tensor) for name, tensor in average.items())
    assert weights.keys() == newest.keys()
    assert not weights["embedding.weight"].equal(newest["embedding.weight"])
    training = yaml.safe_load((tmp_path / "model.yaml").read_text())["training"]
    assert training["ema_of_step"] == 26
    assert "epochs_averaged" not in training


def test_a_run_without_one(finished, tmp_path, capsys):
    assert main(["average", str(finished), "choose=ema", f"out={tmp_path / 'no'}"]) == 1
    error = capsys.readouterr().err
    assert "the state after step 26 has none; train with trainer.ema=0.999, or choose=last" in error
    assert not (tmp_path / "no").exists()


def test_another_decay_is_another_run(speech, averaged, tmp_path):
    exp_dir = Path(shutil.copytree(averaged, tmp_path / "exp"))
    with pytest.raises(UserError, match=r"trainer\.ema was 0\.8 and is None"):
        train(tiny_config(speech, exp_dir))


def test_a_state_of_other_weights_is_refused():
    average = WeightAverage(nn.Linear(3, 2), 0.9)
    other = WeightAverage(nn.Linear(3, 4), 0.9).state_dict()
    with pytest.raises(ValueError, match="of other weights, such as 'bias'"):
        average.load_state_dict(other)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1, 1.5])
def test_decays_that_are_none(speech, tmp_path, decay):
    with pytest.raises(UserError, match=r"trainer\.ema is .*, expected a decay above 0 and below 1"):
        check_settings(tiny_config(speech, tmp_path, trainer__ema=decay))


def test_its_bytes_are_predicted(speech, tmp_path):
    config = tiny_config(speech, tmp_path, trainer__ema=DECAY)
    experiment = Experiment(config)
    size = sum(tensor.nbytes for tensor in experiment.average.weights.values())
    with_one, without = (step_of(tiny_config(speech, tmp_path, trainer__ema=ema), 2, 10) for ema in (DECAY, None))
    ours, theirs = (predict_memory(question, growth=False).whole for question in (with_one, without))
    assert ours.highest["averages"] == size
    assert theirs.highest["averages"] == 0
    assert ours.peak_bytes == theirs.peak_bytes + size


def test_plans_count_them():
    model = ResNetConfig(name="resnet10", embedding_dim=16, base_width=4)
    weights = []
    for ema in (False, True):
        question = MemoryPredictionConfig(
            frames=40, num_bins=24, num_classes=10, model=model, loss=LossConfig(name="aam"), ema=ema
        )
        with profiler_of(question) as profiler:
            weights.append(profiler.profile_step(question.memory, "fp32").weights)
            size = sum(4 * tensor.numel() for tensor in WeightAverage(profiler.network, 0.9).weights.values())
    assert weights[1] - weights[0] == size > 0


def test_a_plan_says_the_word_and_all_networks_are_fitted_with_it():
    sizes = {"batch_size": 8, "frames": 200, "num_bins": 80, "devices": 1}
    words = words_of_run(ResNetConfig(name="resnet34"), LossConfig(name="aam"), **sizes, ema=True)
    assert "trainer.ema=0.999" in words
    plans = [fitting_networks(PlanConfig(gpu="2080ti", ema=ema), find_card("2080ti", None)) for ema in (False, True)]
    (without,), (with_one,) = ([each for each in plan if each.name == "resnet293"] for plan in plans)
    assert with_one.micro_batch > 0
    assert with_one.peak_bytes > without.peak_bytes or with_one.micro_batch < without.micro_batch
