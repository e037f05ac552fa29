"""Validation while training: on which speakers, on which trials, and that its figures can be computed again."""

from __future__ import annotations

import logging
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from speech_material import write_speech
from tiny_runs import read_records, tiny_config

from svtoolkit.config import ValidationConfig
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import read_trials
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.models import build_model
from svtoolkit.runs.epoch_weights import load_epoch_weights, weights_path
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.metrics import equal_error_rate, min_dcf
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.validation import HeldOutValidation


def extractor_of(network) -> EmbeddingExtractor:
    return EmbeddingExtractor(network, build_front_end(num_bins=24), torch.device("cpu"))


def make_network():
    torch.manual_seed(0)
    return build_model("resnet10", num_bins=24, embedding_dim=16, base_width=4)


@pytest.mark.parametrize("epoch", [1, 2])
def test_figures_are_those_of_the_epochs_weights_on_the_saved_trials(finished, epoch):
    """Every utterance by itself, every cosine by itself."""
    network = make_network()
    network.load_state_dict(load_epoch_weights(weights_path(finished / "checkpoints", epoch)))
    extractor = extractor_of(network)
    embeddings = {}
    for utterance in KaldiDir.read(finished / "validation").utterances():
        extraction = extractor.extract([utterance])
        embeddings[utterance.utterance_id] = extraction.embeddings[0].astype(np.float64)
    trials = read_trials(finished / "validation" / "trials")
    scores = []
    for enrol, test in zip(trials.enrol, trials.test, strict=True):
        a, b = embeddings[enrol], embeddings[test]
        scores.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    record = next(r for r in read_records(finished) if r["kind"] == "epoch" and r["epoch"] == epoch)
    assert record["validation_eer"] == pytest.approx(equal_error_rate(np.array(scores), trials.target)[0], abs=1e-9)
    expected = min_dcf(np.array(scores), trials.target, p_target=0.05)[0]
    assert record["validation_min_dcf"] == pytest.approx(expected, abs=1e-9)


def test_held_out_speakers_are_no_training_classes(speech, finished, tmp_path):
    held_out = KaldiDir.read(finished / "validation")
    training_set = Experiment(tiny_config(speech, tmp_path)).data.training_set
    assert len(held_out.speakers) == 2
    assert len(training_set.speakers) == 6
    assert not set(held_out.speakers) & set(training_set.speakers)
    assert not set(held_out.utt2spk) & {utterance.utterance_id for utterance in training_set.utterances}
    assert set(held_out.speakers) | set(training_set.speakers) == set(KaldiDir.read(speech).speakers)


def test_trials_are_of_the_held_out_speakers_and_balanced(finished):
    held_out, trials = KaldiDir.read(finished / "validation"), read_trials(finished / "validation" / "trials")
    assert trials.utterances <= set(held_out.utt2spk)
    same = [
        held_out.utt2spk[enrol] == held_out.utt2spk[test] for enrol, test in zip(trials.enrol, trials.test, strict=True)
    ]
    assert same == trials.target.tolist()
    assert np.count_nonzero(trials.target) == np.count_nonzero(~trials.target) == 12


def test_without_validation_there_is_none(speech, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        assert train(tiny_config(speech, tmp_path, validation__speakers=0, trainer__epochs=1)) is None
    assert "8 speakers x 3 speeds = 24 classes\n" in (tmp_path / "logs" / "train.log").read_text()
    assert not (tmp_path / "validation").exists()
    assert not [record for record in read_records(tmp_path) if "validation_eer" in record]


@pytest.mark.parametrize(
    ("changes", "held_out", "note"),
    [
        ({}, 0, "no speaker is held out for validation: a fifth of 8 speakers, of those with two utterances, is less"),
        ({"speakers": 2}, 2, None),
        ({"speakers": 6}, 6, None),
    ],
)
def test_of_few_speakers_a_fifth_is_held_out_unless_a_number_is_given(
    changes, held_out, note, speech, tmp_path, caplog
):
    config = tiny_config(speech, tmp_path)
    config.validation = ValidationConfig(**changes)
    with caplog.at_level(logging.INFO):
        data = TrainingData(config)
    assert len(data.training_set.speakers) == 8 - held_out
    assert (0 if data.held_out is None else len(data.held_out.speakers)) == held_out
    assert ("held out for validation" in caplog.text) == (note is not None)
    assert note is None or note in caplog.text


@pytest.mark.parametrize(
    ("changes", "expected", "note"),
    [
        (
            {"batch_size": None},
            32,
            "batch_size is 32 instead of 256: 108 crops an epoch .* make 3 steps of it; ",
        ),
        ({"batch_size": None, "max_batch_size": 108}, 108, None),
        ({"batch_size": None, "micro_batch": 6}, 48, "trainer.batch_size is 48 instead of 256"),
        ({"batch_size": 108}, 108, None),
    ],
)
def test_a_corpus_of_fewer_crops_than_a_batch_gets_one_that_fits(changes, expected, note, speech, tmp_path, caplog):
    config = tiny_config(speech, tmp_path)
    config.trainer = replace(config.trainer, **changes)
    with caplog.at_level(logging.INFO):
        experiment = Experiment(config)
    assert experiment.step.batch_size == experiment.sampler.batch_size == expected
    assert experiment.schedule.steps_per_epoch == 108 // expected
    assert bool(re.search("instead of", caplog.text)) == (note is not None)
    assert note is None or re.search(note, caplog.text)
    assert f"effective batch {expected} = " in caplog.text


def test_fewer_held_out_speakers_than_usual_are_spoken_of(tmp_path, caplog):
    config = tiny_config(write_speech(tmp_path, speakers=11, utterances=2), tmp_path / "exp")
    config.validation = ValidationConfig(max_speakers=8)
    with caplog.at_level(logging.INFO):
        data = TrainingData(config)
    assert data.held_out is not None
    assert len(data.held_out.speakers) == 2
    assert "2 speakers are held out for validation instead of 8: a fifth of 11 at most" in caplog.text


def test_a_network_in_training_stays_in_training_and_as_it_was(speech, tmp_path):
    kaldi_dir = KaldiDir.read(speech)
    validation = HeldOutValidation(kaldi_dir, targets_per_speaker=3, seed=1, folder=tmp_path)
    network = make_network().train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    random_before = torch.get_rng_state()
    figures = validation.run(extractor_of(network))
    assert figures == validation.run(extractor_of(network))
    assert set(figures) == {"validation_eer", "validation_min_dcf"}
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_before)


def test_trials_are_the_same_whenever_they_are_drawn(speech, tmp_path):
    kaldi_dir = KaldiDir.read(speech)
    for name in ("one", "two"):
        HeldOutValidation(kaldi_dir, targets_per_speaker=3, seed=1, folder=tmp_path / name)
    HeldOutValidation(kaldi_dir, targets_per_speaker=3, seed=2, folder=tmp_path / "three")
    one, two, three = ((tmp_path / name / "trials").read_bytes() for name in ("one", "two", "three"))
    assert one == two
    assert one != three


def test_an_utterance_that_cannot_be_read_is_named(speech, tmp_path):
    kaldi_dir = KaldiDir.read(speech)
    broken = tmp_path / "broken.flac"
    shutil.copy(kaldi_dir.wav_scp["spk2-utt3"], broken)
    broken.write_bytes(broken.read_bytes()[:50])
    kaldi_dir.wav_scp["spk2-utt3"] = str(broken)
    validation = HeldOutValidation(kaldi_dir, targets_per_speaker=3, seed=1, folder=Path(tmp_path / "validation"))
    message = r"validation: 1 utterances have no embedding, the first is 'spk2-utt3': .*broken\.flac.*repair the data"
    with pytest.raises(UserError, match=message):
        validation.run(extractor_of(make_network()))
