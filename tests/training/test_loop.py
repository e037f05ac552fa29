"""The loop: schedules and windows in the history, full disks, numbers that are not finite, what is kept and when."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from tiny_runs import assert_same_run, read_records, tiny_config

from svtoolkit.crops import crop
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.runs.epoch_weights import kept_epochs, save_epoch_weights
from svtoolkit.runs.full_state import list_states, load_latest_state, save_state
from svtoolkit.training import loop
from svtoolkit.training.experiment import Experiment, train

STEPS, EPOCH = 26, 13

SHORT = {"data__speeds": [1.0], "trainer__checkpoint_steps": 0}
"""Changes of the tiny run: epochs of four steps, of six without validation, and states at their ends alone."""


def steps_of(exp_dir):
    return [record for record in read_records(exp_dir) if record["kind"] == "step"]


def epochs_of(exp_dir):
    return [record for record in read_records(exp_dir) if record["kind"] == "epoch"]


def states_of(exp_dir):
    return [int(path.stem.removeprefix("state-")) for path in list_states(exp_dir / "checkpoints")]


def no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def stopped(finished, tmp_path) -> Path:
    """exp_dir of a copy of the finished run that goes on after step 24, its newest state."""
    exp_dir = Path(shutil.copytree(finished, tmp_path / "stopped"))
    list_states(exp_dir / "checkpoints")[-1].unlink()
    return exp_dir


def test_neither_workers_nor_what_the_process_did_before_change_a_bit(speech, tmp_path, finished):
    torch.manual_seed(1234)
    assert train(tiny_config(speech, tmp_path, data__num_workers=2)) is None
    assert_same_run(tmp_path, finished)


def test_rate_and_margin_follow_the_optimizer_step(finished):
    """The formulas of the tiny run: half an epoch of warm-up, a margin that grows from 0.5 to 1.5 epochs."""
    records = steps_of(finished)
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    for record in records:
        before = record["step"] - 1
        rise = 0.001 + (0.05 - 0.001) * min(before / (0.5 * EPOCH), 1.0)
        assert record["lr"] == pytest.approx(rise * math.exp(before / STEPS * math.log(1e-3 / 0.05)), rel=1e-9)
        assert record["margin"] == pytest.approx(0.2 * min(max(before / EPOCH - 0.5, 0.0), 1.0), abs=1e-12)
        assert record["epoch"] == math.ceil(record["step"] / EPOCH)


def test_the_rate_does_not_depend_on_the_micro_batch(speech, tmp_path, finished):
    """And states come by steps of the optimizer, and at the end of epochs."""
    changes = {"trainer__micro_batch": 4, "trainer__checkpoint_steps": 5, "trainer__keep_states": 99}
    assert train(tiny_config(speech, tmp_path, data__num_workers=1, **changes)) is None
    shown = [
        [(record["step"], record["lr"], record["margin"]) for record in steps_of(run)] for run in (tmp_path, finished)
    ]
    assert shown[0] == shown[1]
    assert states_of(tmp_path) == [5, 10, 13, 15, 20, 25, 26]
    state = load_latest_state(tmp_path / "checkpoints")
    assert state is not None
    assert state[1]["optimizer"]["param_groups"][0]["lr"] == shown[0][-1][1]


def test_records_are_means_over_their_window(speech, tmp_path, finished):
    changes = {"trainer__log_steps": 5, "trainer__checkpoint_steps": 0, "trainer__keep_states": 99}
    assert train(tiny_config(speech, tmp_path, **changes)) is None
    assert (states_of(tmp_path), states_of(finished)) == ([13, 26], [24, 26])
    every = steps_of(finished)
    records = steps_of(tmp_path)
    assert [record["step"] for record in records] == [5, 10, 15, 20, 25]
    for record in records:
        window = every[record["step"] - 5 : record["step"]]
        for name in ("loss", "accuracy", "accuracy_no_margin"):
            assert record[name] == pytest.approx(np.mean([step[name] for step in window]), rel=1e-9)
    for number, record in enumerate(epochs_of(tmp_path)):
        window = every[EPOCH * number : EPOCH * (number + 1)]
        assert record["loss"] == pytest.approx(np.mean([step["loss"] for step in window]), rel=1e-9)
        assert record["step"] == EPOCH * (number + 1)


def test_states_are_written_by_time(speech, tmp_path, monkeypatch):
    """By this clock a step takes three minutes, so that more than ten have passed after four steps."""
    now = iter(range(0, 10**9, 180))
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(now), perf_counter=time.perf_counter))
    config = tiny_config(speech, tmp_path, **SHORT, validation__speakers=0, trainer__keep_states=99)
    experiment = Experiment(config)
    history = loop.History(tmp_path, resume_step=0)
    batches = experiment.batches()
    experiment.loop.run(batches, history)
    history.close()
    batches.close()
    assert (experiment.schedule.steps_per_epoch, experiment.schedule.total_steps) == (6, 12)
    assert states_of(tmp_path) == [4, 6, 10, 12]


def test_a_disk_that_is_full_for_a_while_is_survived(speech, tmp_path, finished, monkeypatch, caplog):
    def full_from_5_to_20(folder, step, state, *, keep):
        return no_space() if 5 <= step <= 20 else save_state(folder, step, state, keep=keep)

    monkeypatch.setattr(loop, "save_state", full_from_5_to_20)
    assert train(tiny_config(speech, tmp_path)) is None
    failed = re.findall(r"the state after step (\d+) could not be written \(.*No space left on device\)", caplog.text)
    assert failed == ["6", "9", "12", "13", "15", "18"]
    assert_same_run(tmp_path, finished)


def test_a_disk_that_is_full_at_the_end_is_an_error_and_nothing_is_lost(speech, stopped, finished, monkeypatch):
    config = tiny_config(speech, stopped, trainer__checkpoint_steps=1)
    monkeypatch.setattr(loop, "save_state", no_space)
    message = (
        r"checkpoints: the state after step 26 could not be written .*No space left.*; free some disk and run the same"
    )
    with pytest.raises(UserError, match=message):
        train(config)
    assert states_of(stopped) == [24]
    monkeypatch.undo()
    assert train(config) is None
    assert_same_run(stopped, finished)


def test_epoch_weights_that_cannot_be_written_are_passed_over(speech, tmp_path, monkeypatch, caplog):
    def full_at_first(folder, epoch, weights):
        return no_space() if epoch == 1 else save_epoch_weights(folder, epoch, weights)

    monkeypatch.setattr(loop, "save_epoch_weights", full_at_first)
    assert train(tiny_config(speech, tmp_path, **SHORT)) is None
    assert "the weights of epoch 1 could not be written" in caplog.text
    assert kept_epochs(tmp_path / "checkpoints") == [2]


def test_those_of_the_last_epoch_are_an_error_and_nothing_is_lost(speech, stopped, finished, monkeypatch):
    config = tiny_config(speech, stopped)
    (stopped / "checkpoints" / "epoch-0002.safetensors").unlink()
    monkeypatch.setattr(loop, "save_epoch_weights", no_space)
    with pytest.raises(
        UserError, match=r"the weights of epoch 2 could not be written .*; free some disk and run the same"
    ):
        train(config)
    monkeypatch.undo()
    assert train(config) is None
    assert_same_run(stopped, finished)


def test_a_history_that_cannot_be_written_is_an_error_at_the_end_and_not_before(
    speech, stopped, finished, monkeypatch, caplog
):
    """And no state is written that it has not come up to."""
    config = tiny_config(speech, stopped, trainer__checkpoint_steps=1)
    with monkeypatch.context() as patched:
        patched.setattr(loop.History, "sync", no_space)
        with pytest.raises(UserError, match="the state after step 26 could not be written"):
            train(config)
    assert "the state after step 25 could not be written" in caplog.text
    assert states_of(stopped) == [24]
    assert train(config) is None
    assert_same_run(stopped, finished)


def spoil(speech: Path, folder: Path, utterances: list[str] | None) -> Path:
    """The corpus with NaN in the middle of some utterances, or of all."""
    kaldi_dir = KaldiDir.read(speech)
    for utterance in kaldi_dir.utt2spk if utterances is None else utterances:
        samples, rate = soundfile.read(kaldi_dir.wav_scp[utterance], dtype="float32")
        samples[200::400] = np.nan
        (folder / "audio").mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / "audio" / f"{utterance}.wav", samples, rate, subtype="FLOAT")
        kaldi_dir.wav_scp[utterance] = str(folder / "audio" / f"{utterance}.wav")
    kaldi_dir.write(folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def spoilt(speech, tmp_path_factory) -> Path:
    """The corpus with NaN in every utterance."""
    return spoil(speech, tmp_path_factory.mktemp("spoilt"), None)


@pytest.fixture
def unseen(monkeypatch) -> None:
    """NaN that is not seen in the samples of a crop, as if it came up behind them."""
    monkeypatch.setattr(crop, "explain_samples", lambda samples: None)


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize(("precision", "speeds"), [("fp32", [1.0, 0.9, 1.1]), ("fp16", [1.0])])
def test_an_utterance_with_nan_is_named_and_its_steps_are_skipped(precision, speeds, speech, tmp_path, caplog):
    data = spoil(speech, tmp_path, ["spk3-utt2"])
    changes = {"validation__speakers": 0, "data__speeds": speeds, "trainer__epochs": 1}
    config = tiny_config(data, tmp_path / "exp", **changes, trainer__precision=precision)
    with caplog.at_level(logging.WARNING):
        assert train(config) is None
    pattern = r"step (\d+): loss or gradient is not finite, the update is skipped \(1 in a row\); utterances: (.*)"
    found = re.findall(pattern, caplog.text)
    assert {name for _, name in found} == {f"spk3-utt2 (speed {speed:g})" for speed in speeds}
    assert len(found) == len(speeds)
    steps = [record["step"] for record in steps_of(tmp_path / "exp")]
    assert steps == [step for step in range(1, 6 * len(speeds) + 1) if str(step) not in {number for number, _ in found}]
    state = load_latest_state(tmp_path / "exp" / "checkpoints")
    assert state is not None
    assert all(torch.isfinite(tensor).all() for tensor in state[1]["network"].values())
    assert state[1]["facts"]["nonfinite_steps"] == 0


@pytest.mark.usefixtures("unseen")
def test_a_skipped_step_changes_no_bit_of_the_state(spoilt, tmp_path):
    config = tiny_config(spoilt, tmp_path / "exp", validation__speakers=0, trainer__keep_states=99)
    config.trainer.nonfinite_patience, config.trainer.checkpoint_steps = 3, 1
    with pytest.raises(UserError):
        train(config)
    first, second = (torch.load(path, weights_only=True) for path in list_states(tmp_path / "exp" / "checkpoints"))
    for part in ("network", "head"):
        for name, tensor in first[part].items():
            assert torch.equal(tensor, second[part][name])
    assert first["optimizer"]["state"] == second["optimizer"]["state"] == {}
    assert second["facts"]["nonfinite_steps"] == 2


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("patience", [1, 4])
def test_too_many_steps_in_a_row_that_are_not_finite_end_the_run(patience, spoilt, tmp_path, caplog):
    config = tiny_config(spoilt, tmp_path / "exp", validation__speakers=0, trainer__nonfinite_patience=patience)
    with pytest.raises(UserError) as caught:
        train(config)
    message = str(caught.value)
    assert message.startswith(
        f"step {patience}: loss or gradient was not finite {patience} times in a row, last for spk"
    )
    assert len(re.findall(r"spk\d-utt\d \(speed [\d.]+\)", message)) == 8
    assert "check these files with `svt validate`, lower optim.lr, or set trainer.gradient_clip" in message
    assert caplog.text.count("the update is skipped") == patience


@pytest.mark.usefixtures("unseen")
def test_patience_counts_across_a_stop(spoilt, tmp_path):
    config = tiny_config(spoilt, tmp_path / "exp", validation__speakers=0, trainer__nonfinite_patience=5)
    with pytest.raises(UserError, match=r"step 5: .* not finite 5 times in a row"):
        train(config)
    assert states_of(tmp_path / "exp") == [3]
    config.trainer.nonfinite_patience = 4
    with pytest.raises(UserError, match=r"step 4: .* not finite 4 times in a row"):
        train(config)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_trains_and_validates(precision, speech, tmp_path, finished):
    assert train(tiny_config(speech, tmp_path, trainer__precision=precision, trainer__epochs=1)) is None
    loss, exact = (steps_of(run)[0]["loss"] for run in (tmp_path, finished))
    assert loss != exact
    assert loss == pytest.approx(exact, rel=0.02), "the first step has the same weights"
    assert [0 <= record["validation_eer"] <= 1 for record in epochs_of(tmp_path)] == [True]


def test_the_newest_and_best_epochs_are_kept_as_configured(speech, tmp_path):
    config = tiny_config(speech, tmp_path, **SHORT, trainer__epochs=5, trainer__keep_last=2, trainer__keep_best=1)
    assert train(config) is None
    errors = {record["epoch"]: record["validation_eer"] for record in epochs_of(tmp_path)}
    assert sorted(errors) == [1, 2, 3, 4, 5]
    best = min(errors, key=lambda epoch: (errors[epoch], epoch))
    assert kept_epochs(tmp_path / "checkpoints") == sorted({4, 5, best})


def test_validation_comes_every_so_many_epochs_and_at_the_end(speech, tmp_path):
    assert train(tiny_config(speech, tmp_path, **SHORT, trainer__epochs=5, validation__every_epochs=2)) is None
    assert [record["epoch"] for record in epochs_of(tmp_path) if "validation_eer" in record] == [2, 4, 5]


def test_a_state_of_other_data_is_refused(speech, tmp_path):
    experiment = Experiment(tiny_config(speech, tmp_path, validation__speakers=0))
    state = {"facts": {"fingerprint": "of other data"}}
    with pytest.raises(
        UserError, match=r"the saved run was trained on other data \(utterances, speakers, speeds or warps differ\)"
    ):
        experiment.loop.restore(state)
