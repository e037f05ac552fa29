"""States and histories that are well-formed and not ours: a sentence, and the state before."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

import pytest
import torch
from broken_inputs import a_device, nested
from command_material import said
from tiny_runs import tiny_config

from svtoolkit.errors import UserError
from svtoolkit.runs.full_state import list_states, save_state
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.run_state import UnfitStateError, check_state

pytestmark = pytest.mark.timeout(60)


def drop(*keys: str):
    def change(state):
        for key in keys[:-1]:
            state = state[key]
        del state[keys[-1]]

    return change


def put(value, *keys: str):
    def change(state):
        for key in keys[:-1]:
            state = state[key]
        state[keys[-1]] = value

    return change


def fewer_classes(state):
    state["head"]["weight"] = state["head"]["weight"][:5]


def wider_head(state):
    state["head"]["weight"] = torch.zeros(len(state["head"]["weight"]), 99)


def other_momentum(state):
    state["optimizer"]["state"][0]["momentum_buffer"] = torch.zeros(7)


STATES = {
    "no network": (drop("network"), "its part 'network' is missing"),
    "a list for a head": (put([1], "head"), "its part 'head' is a list"),
    "text among the weights": (put("x", "network", "stem.0.weight"), "its part 'network' holds something else"),
    "another weight": (put(torch.zeros(3), "network", "stem.0.weight"), "size mismatch for stem.0.weight"),
    "another network": (put({}, "network"), "Missing key(s)"),
    "a head of no classes": (put(torch.zeros(3), "head", "weight"), "its part 'head' has no 'weight' of shape"),
    "fewer classes": (fewer_classes, "its head has 5 classes, the data have 18"),
    "a wider head": (wider_head, "size mismatch for weight"),
    "steps in words": (put("many", "facts", "finished_steps"), "its fact 'finished_steps' is a str"),
    "no fingerprint": (drop("facts", "fingerprint"), "its fact 'fingerprint' is missing"),
    "other data": (put("0", "facts", "fingerprint"), "was trained on other data"),
    "a meter of text": (put({"loss": "high"}, "meters", "log"), "its meter 'log' holds something else"),
    "a meter of other sums": (put({"lost": 1.0}, "meters", "log"), "unexpected keyword argument 'lost'"),
    "momentum of another shape": (other_momentum, "momentum_buffer of the optimizer has the shape (7,)"),
    "momentum in words": (put("much", "optimizer", "param_groups", 0, "momentum"), "momentum of the optimizer is"),
    "no random numbers": (put({}, "random"), "does not fit this run: 'torch'"),
    "random numbers of text": (put("x", "random", "torch"), "does not fit this run"),
}
"""What is wrong with a state that can be read -> how it is made, what is said of it."""


@pytest.fixture(scope="module")
def experiment(speech, tmp_path_factory) -> Experiment:
    return Experiment(tiny_config(speech, tmp_path_factory.mktemp("experiment")))


def ask(experiment: Experiment, state: dict[str, Any]) -> None:
    """As a run that looks for a state that it can resume from."""
    check_state(state)
    experiment.loop.restore(state)


@pytest.mark.parametrize("kind", [kind for kind in STATES if kind != "fewer classes"])
def test_states_of_something_else_are_refused(kind, experiment, finished, monkeypatch):
    change, noun = STATES[kind]
    optimizer = experiment.step.optimizer
    monkeypatch.setattr(optimizer, "param_groups", [dict(group) for group in optimizer.param_groups])
    state = torch.load(list_states(finished / "checkpoints")[-1], weights_only=True)
    check_state(state)
    change(state)
    with pytest.raises(UnfitStateError, match=re.escape(noun)):
        ask(experiment, state)


@pytest.mark.parametrize("kind", ["a list for a head", "fewer classes", "momentum of another shape"])
def test_a_run_falls_back_to_the_state_before(kind, speech, finished, tmp_path, caplog):
    """Whether the parts, the data or the optimizer do not fit."""
    change, noun = STATES[kind]
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    older, newest = list_states(exp_dir / "checkpoints")
    state = torch.load(newest, weights_only=True)
    change(state)
    save_state(newest.parent, 26, state, keep=2)
    caplog.set_level("INFO")
    assert train(tiny_config(speech, exp_dir)) is None
    assert noun in caplog.text
    assert "falling back to the state before it" in caplog.text
    assert "resuming after step 24 of 26" in caplog.text
    assert newest.with_name(f"{newest.name}.damaged").exists()
    assert list_states(newest.parent) == [older, newest]
    for path in (older, newest):
        save_state(path.parent, int(path.stem[6:]), state, keep=2)
    with pytest.raises(UserError):
        train(tiny_config(speech, exp_dir))
    assert list_states(newest.parent) == [older, newest], "what another command can use is not renamed"


@pytest.mark.parametrize("build", [os.mkfifo, a_device])
def test_states_that_are_no_files(build, speech, finished, tmp_path, caplog):
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    newest = list_states(exp_dir / "checkpoints")[-1]
    newest.unlink()
    build(newest)
    assert train(tiny_config(speech, exp_dir)) is None
    assert "expected a regular file" in caplog.text


def test_epochs_that_are_no_files(finished, tmp_path, capsys):
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    epoch = exp_dir / "checkpoints" / "epoch-0002.safetensors"
    epoch.unlink()
    os.mkfifo(epoch)
    assert f"{epoch}: is a pipe" in said(capsys, "average", exp_dir)


HISTORIES = {
    '{"kind": "step", "step": "ten"}': "found 'ten' as 'step'",
    '{"kind": "epoch", "step": 26}': "found a record of an epoch without 'epoch'",
    '{"kind": "epoch", "step": 26, "epoch": 2.5}': "found 2.5 as 'epoch'",
    '{"kind": "epoch", "step": 26, "epoch": 2, "validation_eer": "low"}': "found 'low' as 'validation_eer'",
    '{"kind": 3}': 'expected a JSON object with a "kind"',
    "[]": 'expected a JSON object with a "kind"',
    nested(100000): 'expected a JSON object with a "kind"',
    "9" * 5000: 'expected a JSON object with a "kind"',
}
"""Line of a history -> what is said of it."""


@pytest.mark.parametrize("line", HISTORIES, ids=lambda line: line[:40])
def test_histories(line, speech, finished, tmp_path, capsys):
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    history = exp_dir / "logs" / "history.jsonl"
    history.write_text(f"{line}\n" + history.read_text())
    found = said(capsys, "average", exp_dir)
    assert found.startswith(f"error: {history}:1: ")
    assert HISTORIES[line] in found
    list_states(exp_dir / "checkpoints")[-1].unlink()
    with pytest.raises(UserError, match=r"history\.jsonl:1: "):
        train(tiny_config(speech, exp_dir))


def test_histories_that_are_no_files(speech, finished, tmp_path, capsys):
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    (exp_dir / "logs" / "history.jsonl").unlink()
    os.mkfifo(exp_dir / "logs" / "history.jsonl")
    assert "history.jsonl: is a pipe" in said(capsys, "average", exp_dir)
    list_states(exp_dir / "checkpoints")[-1].unlink()
    with pytest.raises(UserError, match=r"history\.jsonl: is a pipe"):
        train(tiny_config(speech, exp_dir))
