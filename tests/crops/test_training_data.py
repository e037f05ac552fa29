"""Runs with noise and reverberation: the same numbers however they are loaded, stopped or computed; refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tiny_runs import assert_same_run, fail_after, read_records, tiny_config

from svtoolkit.crops import loader
from svtoolkit.crops.crop import collate_crops
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.training.experiment import train

RATE = 16000


@pytest.fixture(scope="module")
def sounds(tmp_path_factory) -> dict[str, str]:
    """Data directories of noises of all categories and of three RIRs, as keys of tiny_config."""
    folder, rng = tmp_path_factory.mktemp("sounds"), np.random.default_rng(5)
    noises, rirs = KaldiDir(), KaldiDir()

    def add(kaldi_dir: KaldiDir, name: str, speaker: str, samples: np.ndarray) -> None:
        soundfile.write(folder / f"{name}.flac", samples, RATE)
        kaldi_dir.wav_scp[name] = str(folder / f"{name}.flac")
        kaldi_dir.utt2spk[name] = speaker

    for category, number in (("noise", 2), ("music", 1), ("speech", 4)):
        for index in range(number):
            add(noises, f"{category}-{index}", category, 0.2 * rng.standard_normal(RATE // 2))
    for index in range(3):
        ringing = rng.standard_normal(RATE // 10) * np.exp(-np.arange(RATE // 10) / 300)
        add(rirs, f"rir-{index}", "small", 0.5 * ringing / np.abs(ringing).max())
    noises.write(folder / "noises")
    rirs.write(folder / "rirs")
    return {"augment__noise": str(folder / "noises"), "augment__reverberation": str(folder / "rirs")}


@pytest.fixture(scope="module")
def augmented(speech, sounds, tmp_path_factory) -> Path:
    exp_dir = tmp_path_factory.mktemp("augmented") / "exp"
    assert train(tiny_config(speech, exp_dir, **sounds, trainer__epochs=1)) is None
    return exp_dir


def losses_of(exp_dir: Path) -> list[float]:
    return [record["loss"] for record in read_records(exp_dir) if record["kind"] == "step"]


def test_crops_are_changed(augmented, finished):
    assert losses_of(augmented)[0] != pytest.approx(losses_of(finished)[0], rel=1e-4)


def test_the_log_says_what_there_is_to_draw_from(speech, sounds, tmp_path, caplog):
    with caplog.at_level("INFO"):
        TrainingData(tiny_config(speech, tmp_path, **sounds)).announce()
    expected = (
        "60 % of crops get reverberation (3 responses), noise (2 noise, 1 music, 4 speech), computed in the worker"
    )
    assert expected in caplog.text


def test_the_log_says_what_is_not_added(speech, sounds, tmp_path, caplog):
    with caplog.at_level("INFO"):
        TrainingData(tiny_config(speech, tmp_path, **sounds)).announce()
        assert "trains without" not in caplog.text
        TrainingData(tiny_config(speech, tmp_path, **{**sounds, "augment__reverberation": None})).announce()
        TrainingData(tiny_config(speech, tmp_path)).announce()
    assert "trains without augment.reverberation: give the data directory to add it" in caplog.text
    assert "trains without augment.noise and without augment.reverberation: give" in caplog.text


def test_a_warning_names_factors_among_which_speech_as_it_is_is_missing(speech, tmp_path, caplog):
    TrainingData(tiny_config(speech, tmp_path, data__warps=[1.0, 0.9])).announce()
    assert "without 1.0" not in caplog.text
    TrainingData(tiny_config(speech, tmp_path, data__speeds=[0.9], data__warps=[0.9, 1.1])).announce()
    assert "data.speeds is [0.9], without 1.0: no crop is of speech as it is; add 1.0" in caplog.text
    assert "data.warps is [0.9, 1.1], without 1.0" in caplog.text


def test_any_number_of_workers_and_any_stop_give_the_same_numbers(augmented, speech, sounds, tmp_path, monkeypatch):
    config = tiny_config(speech, tmp_path / "exp", **sounds, trainer__epochs=1, data__num_workers=2)
    with monkeypatch.context() as patched:
        fail_after(patched, 9)
        with pytest.raises(RuntimeError):
            train(config)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", augmented)


def test_the_batch_is_changed_as_its_crops_would_be(speech, sounds, tmp_path):
    """Up to rounding: at this learning rate it does not grow from step to step."""
    still = {"optim__lr": 1e-5, "schedule__start_factor": 0.1, "schedule__end_factor": 0.1, "trainer__epochs": 1}
    for device in ("worker", "batch"):
        assert train(tiny_config(speech, tmp_path / device, **sounds, **still, augment__device=device)) is None
    losses = losses_of(tmp_path / "worker")
    assert len(set(losses)) == len(losses) == 13
    np.testing.assert_allclose(losses_of(tmp_path / "batch"), losses, rtol=3e-5)


@pytest.mark.parametrize("changes", [{"augment__probability": 0.0}, {}], ids=["never", "nothing to draw from"])
def test_what_cannot_happen_costs_nothing(speech, sounds, tmp_path, changes):
    data = TrainingData(tiny_config(speech, tmp_path, **(sounds if changes else {}), **changes))
    assert data.augmenter.changes == {}


@pytest.mark.parametrize(
    "changes", [{"augment__gain": [-3.0, 3.0]}, {"augment__telephone_probability": 0.5}], ids=["gain", "telephone"]
)
def test_gain_and_telephone_need_no_directory(speech, tmp_path, changes):
    data = TrainingData(tiny_config(speech, tmp_path, **changes, augment__probability=1.0))
    assert data.augmenter.changes
    assert data.fingerprint() == TrainingData(tiny_config(speech, tmp_path)).fingerprint()


def test_other_sounds_are_other_data(speech, sounds, tmp_path):
    fingerprints = {
        TrainingData(tiny_config(speech, tmp_path, **chosen)).fingerprint()
        for chosen in ({}, sounds, {"augment__noise": sounds["augment__noise"]})
    }
    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"augment__device": "gpu"}, r"augment\.device is 'gpu', expected one of worker, batch"),
        ({"augment__probability": 1.2}, r"augment\.probability is 1\.2, expected a share from 0 to 1"),
        ({"augment__noise": "/nowhere"}, "/nowhere: there is no such data directory"),
    ],
)
def test_what_cannot_be_is_refused(speech, tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        TrainingData(tiny_config(speech, tmp_path, **changes))


def test_one_speaker_cannot_be_told_from_others(speech, tmp_path):
    kaldi_dir = KaldiDir.read(speech)
    kaldi_dir.subset(name for name, speaker in kaldi_dir.utt2spk.items() if speaker == "spk3").write(tmp_path / "one")
    with pytest.raises(UserError, match=r"one: found one training speaker, 'spk3', expected two or more, whom the"):
        train(tiny_config(tmp_path / "one", tmp_path / "exp", validation__speakers=0))
    config = tiny_config(speech, tmp_path / "exp", validation__speakers=7)
    with pytest.raises(
        UserError, match=r"found one training speaker, .*lower validation\.speakers or data\.min_seconds"
    ):
        train(config)


def test_rirs_are_no_noises(speech, sounds, tmp_path):
    with pytest.raises(UserError, match=r"augment\.noise: utterance 'rir-0' is of the category \(speaker\) 'small'"):
        TrainingData(tiny_config(speech, tmp_path, augment__noise=sounds["augment__reverberation"]))


def test_noise_that_waits_for_the_device_goes_there_with_its_crops(speech, sounds, tmp_path):
    config = tiny_config(speech, tmp_path, **sounds, augment__device="batch", augment__probability=1.0)
    crops = TrainingData(config).crops(build_front_end(num_bins=24))
    batch = collate_crops([crops[0, entry] for entry in range(4)])
    assert batch.changes.keys() == {"noise", "reverberation"}
    moved = batch.to(torch.device("meta"))
    assert all(rows.parameters[key].is_meta for rows in moved.changes.values() for key in rows.parameters)
    assert moved.waveforms.is_meta


@pytest.mark.parametrize(
    ("wanted", "cores", "processes", "workers"),
    [
        (0, 16, 1, 0),
        (12, 2, 1, 12),
        (None, 1, 1, 1),
        (None, 2, 1, 1),
        (None, 6, 1, 5),
        (None, 64, 1, 8),
        (None, 16, 4, 3),
    ],
)
def test_loader_processes_leave_a_core_to_the_training(wanted, cores, processes, workers, monkeypatch):
    monkeypatch.setattr(loader, "count_cores", lambda: cores)
    assert loader.workers_of(wanted, processes) == workers
