"""The batch that a GPU holds: tried, halved once, or refused with what would fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from predictions import report_once
from tiny_runs import assert_same_run, tiny_config

from svtoolkit.config import CheckpointConfig, MemoryPredictionConfig, RecomputeNormConfig, SGD8bitConfig
from svtoolkit.distributed.world import ALONE
from svtoolkit.errors import UserError
from svtoolkit.memory.step_report import FORWARD, KINDS, PHASES, MemoryReport
from svtoolkit.planning.memory_prediction import StepMemory
from svtoolkit.planning.micro_batch import step_of
from svtoolkit.planning.unpredictable import UnpredictableError
from svtoolkit.runs.exp_dir import CHECKPOINTS
from svtoolkit.runs.full_state import load_latest_state
from svtoolkit.runs.history import History
from svtoolkit.training import experiment as experiment_module
from svtoolkit.training import fitting, setup
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.fitting import GIB, fit_micro_batch, oom_error, suggestions, try_pass
from svtoolkit.training.loop import TrainingLoop


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction that is done at once, for tests of what is named and of what is made of the figures.

    A crop needs 3 MiB, stored, in float32 with 32-bit state.
    """

    def predict(step: MemoryPredictionConfig, *, growth: bool) -> StepMemory:
        crop = 3 if step.memory.strategy == "store" else 1
        state = 0 if "8bit" in step.optim.name else 1
        peak = round((step.batch_size * crop * (1 if step.precision == "fp32" else 0.5) + state) * 2**20)
        nothing = dict.fromkeys(KINDS, 0)
        report = MemoryReport(peak, FORWARD, nothing, nothing, 0, dict.fromkeys(PHASES, peak), [])
        return StepMemory(step.batch_size, step.memory.strategy, report, None)

    monkeypatch.setattr(fitting, "predict_memory", predict)


def gpu_for(crops: int) -> tuple[Callable[[int], None], list[int]]:
    """A GPU that holds so many crops, and what was tried on it."""
    tried: list[int] = []

    def attempt(micro_batch: int) -> None:
        tried.append(micro_batch)
        if micro_batch > crops:
            raise torch.OutOfMemoryError("CUDA out of memory")

    return attempt, tried


def test_what_fits_is_taken_as_it_is(tmp_path, caplog):
    attempt, tried = gpu_for(8)
    assert fit_micro_batch(tiny_config(tmp_path, tmp_path), 8, 18, ALONE, attempt, GIB) == 8
    assert tried == [8]
    assert not caplog.records


def test_half_is_tried_once_and_said(tmp_path, caplog):
    attempt, tried = gpu_for(4)
    assert fit_micro_batch(tiny_config(tmp_path, tmp_path), 8, 18, ALONE, attempt, GIB) == 4
    assert tried == [8, 4]
    assert "8 crops at once do not fit into the memory of the GPU: continuing with 4, accumulated twice" in caplog.text
    assert "the effective batch stays (in a new run set trainer.micro_batch=4)" in caplog.text


@pytest.mark.parametrize(
    ("micro_batch", "says", "tries"), [(8, "neither 8 nor 4 crops", [8, 4]), (7, "not 7 crops", [7])]
)
def test_no_more_than_half_is_tried(tmp_path, by_hand, micro_batch, says, tries):
    attempt, tried = gpu_for(3)
    with pytest.raises(UserError, match=rf"resnet10: {says} of 40 frames fit into the 4\.0 GiB of the GPU; each of"):
        fit_micro_batch(tiny_config(tmp_path, tmp_path), micro_batch, 18, ALONE, attempt, 4 * GIB)
    assert tried == tries


def test_memory_that_ran_out_is_told_where_nothing_can_be_predicted(tmp_path, monkeypatch):
    def refuse(*arguments, **settings):
        raise UnpredictableError("optim=lbfgs", "its update depends on values")

    monkeypatch.setattr("svtoolkit.training.fitting.predict_memory", refuse)
    message = str(oom_error(tiny_config(tmp_path, tmp_path), 5, 8, 18, ALONE, 4 * GIB))
    assert "ran out after step 5" in message
    assert message.endswith(
        "set a smaller trainer.micro_batch, or take a smaller network; what would fit is not known: the memory of "
        "optim=lbfgs cannot be predicted: its update depends on values"
    )


def test_suggestions_are_predicted(tmp_path):
    config = tiny_config(tmp_path, tmp_path)
    step = step_of(config, 1, 18)
    assert suggestions(config, 1, 18) == [
        ("memory=recompute_norm", report_once(replace(step, memory=RecomputeNormConfig("recompute_norm"))).peak_bytes),
        ("memory=checkpoint", report_once(replace(step, memory=CheckpointConfig("checkpoint"))).peak_bytes),
        ("trainer.precision=bf16", report_once(replace(step, precision="bf16")).peak_bytes),
        ("optim=sgd_8bit", report_once(replace(step, optim=SGD8bitConfig(lr=0.05))).peak_bytes),
    ]


def test_the_refusal_names_what_is_predicted_to_fit(tmp_path, by_hand, monkeypatch):
    config = tiny_config(tmp_path, tmp_path, model__name="revnet_tiny", memory__strategy="store")
    config.model = type(config.model).__mro__[1](name="revnet_tiny", embedding_dim=16)
    peaks = dict(suggestions(config, 8, 18))
    mib = {"trainer.micro_batch=2": 7, "memory=reversible": 9, "trainer.precision=bf16": 13, "optim=sgd_8bit": 24}
    assert list(peaks.items()) == [(words, size * 2**20) for words, size in mib.items()]
    attempt, _ = gpu_for(0)
    monkeypatch.setattr(fitting, "NON_TENSOR_BYTES", 0)
    middle = sorted(peaks.values())[1]
    with pytest.raises(UserError) as refusal:
        fit_micro_batch(config, 8, 18, ALONE, attempt, middle)
    named = {words for words in peaks if f"{words} (" in str(refusal.value)}
    assert named == {words for words, peak in peaks.items() if peak <= middle}
    with pytest.raises(
        UserError,
        match=r"no single change is predicted to: .*; combine them \(`svt plan model=\w+` lists what fits\), or",
    ):
        fit_micro_batch(config, 8, 18, ALONE, attempt, 1)


@pytest.mark.parametrize("optim", ["sgd", "adamw", "sgd_8bit", "adamw_8bit"])
def test_only_what_is_not_set_yet_is_named(tmp_path: Path, by_hand, optim):
    config = tiny_config(tmp_path, tmp_path, optim=optim, trainer__precision="bf16")
    config.memory = CheckpointConfig("checkpoint")
    names = [words for words, _ in suggestions(config, 1, 18)]
    assert names == ([f"optim={optim}_8bit"] if "8bit" not in optim else [])


def test_a_gpu_without_bf16_is_advised_fp16(tmp_path, by_hand, monkeypatch):
    monkeypatch.setattr(fitting, "half_precision", lambda device: "fp16")
    assert "trainer.precision=fp16" in dict(suggestions(tiny_config(tmp_path, tmp_path), 1, 18))


@pytest.mark.parametrize("model", ["resnet10", "revnet_tiny"])
def test_trying_changes_nothing(speech, tmp_path, model):
    config = tiny_config(speech, tmp_path)
    if model != "resnet10":
        config.model = type(config.model).__mro__[1](name=model, embedding_dim=16)
    step = Experiment(config).step
    before = {name: tensor.clone() for name, tensor in {**step.network.state_dict(), **step.head.state_dict()}.items()}
    generator = torch.get_rng_state()
    try_pass(step, step.front_end.num_samples(40), 3)
    after = {**step.network.state_dict(), **step.head.state_dict()}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.grad is None for parameter in step.parameters)
    assert not step.optimizer.state


def test_trying_leaves_nothing_behind_where_memory_runs_out(speech, tmp_path, monkeypatch):
    step = Experiment(tiny_config(speech, tmp_path)).step
    before = {name: tensor.clone() for name, tensor in step.network.state_dict().items()}

    def run_out(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(step.head, "forward", run_out)
    with pytest.raises(torch.OutOfMemoryError):
        try_pass(step, step.front_end.num_samples(40), 3)
    assert all(torch.equal(step.network.state_dict()[name], tensor) for name, tensor in before.items())
    assert all(parameter.grad is None for parameter in step.parameters)


def test_a_run_whose_batch_was_halved_is_the_run_with_half_the_micro_batch(speech, tmp_path, monkeypatch):
    assert train(tiny_config(speech, tmp_path / "asked", trainer__micro_batch=4, trainer__epochs=1)) is None
    attempt, tried = gpu_for(4)
    monkeypatch.setattr(experiment_module, "gpu_memory_bytes", lambda device: 4 * GIB)
    monkeypatch.setattr(experiment_module, "try_pass", lambda step, samples, crops: attempt(crops))
    assert train(tiny_config(speech, tmp_path / "halved", trainer__epochs=1)) is None
    assert tried == [8, 4]
    assert_same_run(tmp_path / "halved", tmp_path / "asked")


def test_memory_that_runs_out_later_is_no_traceback(speech, tmp_path, by_hand, monkeypatch):
    """In the middle of an epoch, as where another program begins to use the GPU."""
    monkeypatch.setattr(experiment_module, "gpu_memory_bytes", lambda device: 4 * GIB)
    monkeypatch.setattr(experiment_module, "try_pass", lambda *_: None)
    add = History.add

    def run_out(history: History, record: dict[str, Any]) -> None:
        add(history, record)
        if record["step"] == 5:
            raise torch.OutOfMemoryError("CUDA out of memory")

    config = tiny_config(speech, tmp_path / "exp", trainer__epochs=1)
    with monkeypatch.context() as patched:
        patched.setattr(History, "add", run_out)
        with pytest.raises(UserError) as refusal:
            train(config)
    said = str(refusal.value)
    assert said.startswith(
        "resnet10: the 4.0 GiB of the GPU ran out after step 5, with 8 crops of 40 frames at once; if "
    )
    assert "the same command resumes from the newest state; for a new run, each of these is predicted" in said
    assert "trainer.micro_batch=2 (" in said
    assert train(config) is None


@pytest.mark.parametrize(("owner", "name"), [(setup, "build_trainable"), (TrainingLoop, "restore")])
def test_a_gpu_that_is_full_before_any_crop_is_a_sentence(owner, name, speech, tmp_path, monkeypatch):
    config = tiny_config(speech, tmp_path / "exp", trainer__epochs=1)
    if name == "restore":
        assert train(config) is None

    def run_out(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(owner, name, run_out)
    with pytest.raises(UserError, match=r"resnet10: the memory of the GPU ran out on weights alone, .* of a loss=aam"):
        train(config)


def test_memory_of_the_cpu_that_runs_out_is_what_torch_says(speech, tmp_path, monkeypatch):
    def run_out(*_):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(History, "add", run_out)
    with pytest.raises(torch.OutOfMemoryError):
        train(tiny_config(speech, tmp_path / "exp", trainer__epochs=1))


def test_the_cpu_is_not_tried(speech, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_module, "try_pass", lambda *_: pytest.fail("it tries"))
    Experiment(tiny_config(speech, tmp_path))


def test_a_resumed_run_keeps_the_micro_batch_that_it_was_predicted(speech, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_module, "gpu_memory_bytes", lambda device: 4 * GIB)
    monkeypatch.setattr(experiment_module, "predict_micro_batch", lambda *arguments: 4)
    config = tiny_config(speech, tmp_path / "exp", trainer__epochs=1)
    assert train(config) is None
    monkeypatch.setattr(experiment_module, "predict_micro_batch", lambda *arguments: 8)  # as of a larger GPU
    _, state = load_latest_state(tmp_path / "exp" / CHECKPOINTS)
    resumed = experiment_module.Experiment(config, state=state)
    assert (resumed.sampler.micro_batch, resumed.step.accumulation) == (4, 2)
    assert experiment_module.Experiment(config).sampler.micro_batch == 8
