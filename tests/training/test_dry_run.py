"""What `svt train --dry-run` says of a run, against the run."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from predictions import predict_once
from tiny_runs import command_words, read_records, tiny_config

from svtoolkit.cli import main
from svtoolkit.config import TrainConfig
from svtoolkit.memory import apply_strategy
from svtoolkit.models import build_model
from svtoolkit.planning import run_forecast
from svtoolkit.planning.micro_batch import PROBE, step_of
from svtoolkit.planning.run_forecast import forecast_run
from svtoolkit.training import dry_run as module
from svtoolkit.training.dry_run import dry_run


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same step is predicted once, and few passes are timed."""
    monkeypatch.setattr(run_forecast, "predict_memory", predict_once)
    monkeypatch.setattr(module, "SECONDS", 0.0)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_steps_and_disk_are_those_of_the_run(finished, speech, tmp_path, logged):
    forecast = dry_run(tiny_config(speech, tmp_path / "exp"))
    assert forecast.steps == max(record["step"] for record in read_records(finished))
    kept = sum(path.stat().st_size for path in (finished / "checkpoints").iterdir())
    assert forecast.disk_bytes == pytest.approx(kept, rel=0.6)  # of so small a network, names are as large as weights
    assert not (tmp_path / "exp").exists()
    assert "nothing was written" in logged.text


def test_operations_are_those_of_the_convolutions_by_hand(tmp_path, monkeypatch):
    """Two a multiplication with addition; in the forward pass, for the gradient of the weights, for that of the input,
    which the first layer needs not; and forward once more where a stage is recomputed.
    """
    memory = predict_once(step_of(tiny_config(tmp_path, tmp_path), PROBE, 18))
    monkeypatch.setattr(run_forecast, "predict_memory", lambda step: memory)  # of no matter here
    for name, passes in (("resnet10", 3), ("revnet_tiny", 4)):
        config = tiny_config(tmp_path, tmp_path)
        if name != config.model.name:
            config.model = _model(config, name)
        forward = _forward_operations(config)
        counted = forecast_run(config, 10, 8, 18).operations
        assert (passes - 0.5) * forward < counted < (passes + 0.05) * forward


def _model(config: TrainConfig, name: str) -> object:
    return type(config.model).__mro__[1](name=name, embedding_dim=16)


def _forward_operations(config: TrainConfig) -> int:
    network = build_model(num_bins=config.features.num_bins, **asdict(config.model)).eval()
    apply_strategy(network, "store")
    counts: list[int] = []

    def count(layer: torch.nn.Conv2d, inputs: object, output: torch.Tensor) -> None:
        counts.append(2 * output.numel() * layer.weight[0].numel())

    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(count)
    network(torch.zeros(1, config.data.crop_frames, config.features.num_bins))
    return sum(counts)


def test_a_run_that_is_too_long_is_told_how_many_epochs_end(speech, tmp_path, logged, monkeypatch):
    monkeypatch.setattr(module, "_measure_rate", lambda *arguments: 1e4)
    forecast = dry_run(tiny_config(speech, tmp_path, trainer__epochs=40))
    (epochs,) = re.findall(r"in 5 days (\d+) of 40 epochs end: trainer\.epochs=\1 ", logged.text)
    seconds = forecast.operations * 8 * 13 * int(epochs) / 1e4
    assert seconds <= 5 * 86400 < seconds + forecast.operations * 8 * 13 / 1e4


def test_on_the_command_line(speech, tmp_path, capsys):
    words = command_words(tiny_config(speech, tmp_path / "exp"))
    assert main(["train", "--dry-run", *words]) == 0
    said = capsys.readouterr().out
    assert "2 epochs x 13 steps of 8 crops = 26 steps" in said
    assert re.search(r"on cpu, \S+ TFLOPS measured here: ", said)
    assert "2080 Ti, 7 TFLOPS assumed" in said
    assert not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["embed", "--dry-run"], "--dry-run is for `svt train`"),
        (["train", "--dry-run", "--multirun", "seed=1,2"], "--dry-run is of one run; leave out --multirun"),
        (["train", "--dry-run", "data.train=nothing", "exp_dir=exp"], "there is no such data directory"),
    ],
)
def test_what_it_cannot_do_is_said(words, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    assert says in capsys.readouterr().err
    assert list(Path().iterdir()) == []
