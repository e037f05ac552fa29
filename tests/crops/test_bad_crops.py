"""Utterances that give no crop: another takes their place, whoever finds out and whenever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from bad_audio import with_bad_files
from speech_material import RATE

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import CropBatch, CropDataset, CropGeometry
from svtoolkit.crops.loader import load_crops
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import BatchSampler
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

GEOMETRY = CropGeometry(RATE, 4000, frames=23, bins=24)
BAD = {"spk1-utt2": "nan", "spk3-utt0": "broken", "spk4-utt4": "zeros", "spk6-utt1": "silent", "spk7-utt5": "gone"}


def crops_of(data: Path) -> CropDataset:
    training_set = TrainingSet.build(Manifest.read(data), speeds=(1.0, 1.1), min_seconds=0.1)
    return CropDataset(training_set, GEOMETRY, SpecAugment(0.6, 1, 4, 1, 4), dither=1.0, int16_scale=True, seed=3)


def load(data: Path, workers: int, start: int = 0) -> list[CropBatch]:
    crops = crops_of(data)
    sampler = BatchSampler(len(crops), batch_size=12, micro_batch=6, seed=5)
    sampler.start_step, sampler.total_steps = start, 2 * sampler.steps_per_epoch
    return list(load_crops(crops, sampler, num_workers=workers, pin_memory=False))


@pytest.fixture
def data(speech, tmp_path) -> Path:
    return with_bad_files(speech, tmp_path, BAD)


def test_every_crop_is_finite_and_no_good_one_is_another_for_it(data, speech):
    crops, clean = crops_of(data), crops_of(speech)
    names = [utterance.utterance_id for utterance in crops.training_set.utterances]
    for entry in range(len(crops)):
        row, _, _, label = crops.training_set.entry(entry)
        crop = crops[1, entry]
        assert np.isfinite(crop.samples).all()
        assert np.ptp(crop.samples) > 1e-2
        if names[row] not in BAD:
            assert (crop.label, crop.entry, crop.bad) == (label, entry, {})
            np.testing.assert_array_equal(crop.samples, clean[1, entry].samples)
            continue
        assert crop.entry != entry
        assert crop.label == crops.training_set.entry(crop.entry).label, "the label is that of what is heard"
        assert crop.bad.keys() >= {row}
        assert {names[found] for found in crop.bad} <= BAD.keys()


def test_the_numbers_depend_neither_on_workers_nor_on_where_a_run_begins(data):
    alone, two = load(data, 0), load(data, 2)
    later = load(data, 2, start=5)
    assert len(alone) == 32
    assert sum(len(batch.bad) for batch in alone) >= 2 * 2 * len(BAD)
    for one, other in [*zip(alone, two, strict=True), *zip(alone[10:], later, strict=True)]:
        assert one.bad == other.bad
        for ours, theirs in zip(one[:4], other[:4], strict=True):
            assert torch.equal(ours, theirs)


def test_each_is_named_with_its_reason(data):
    crops = crops_of(data)
    names = [utterance.utterance_id for utterance in crops.training_set.utterances]
    reasons = {}
    for entry in range(len(names)):
        reasons |= {names[row]: reason for row, reason in crops[0, entry].bad.items()}
    assert reasons.keys() == BAD.keys()
    audio = data.parent / "audio"
    assert reasons["spk1-utt2"].startswith(f"{audio}/spk1-utt2.wav: holds samples that are NaN or infinite; re-create")
    assert reasons["spk3-utt0"].startswith(f"{audio}/spk3-utt0.wav: cannot be read as audio")
    assert reasons["spk4-utt4"].startswith(f"{audio}/spk4-utt4.wav: is silent: its peak is -inf dBFS, expected -80")
    assert reasons["spk6-utt1"].startswith(f"{audio}/spk6-utt1.wav: is silent: its peak is -106 dBFS")
    assert reasons["spk7-utt5"].startswith(f"{audio}/spk7-utt5.wav: there is no such file")


def test_of_an_utterance_that_is_partly_silent_another_stretch_is_taken(tmp_path):
    samples = np.zeros(20 * RATE)
    samples[10 * RATE :] = np.random.default_rng(0).normal(0, 0.1, 10 * RATE)
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    KaldiDir({"a": str(tmp_path / "a.wav")}, {"a": "ann"}, utt2dur={"a": 20.0}).write(tmp_path / "data")
    crops = crops_of(tmp_path / "data")
    found = [crops[epoch, 0] for epoch in range(8)]
    assert all(np.ptp(crop.samples) > 0.1 and not crop.bad and crop.entry == 0 for crop in found)
    first = [np.random.default_rng([3, epoch, 0]).random() * (20 - GEOMETRY.samples / RATE) for epoch in range(8)]
    assert any(start < 9.7 for start in first), "none began in the silence: nothing was tried"


def test_where_nothing_can_be_used_the_first_reason_is_said(speech, tmp_path):
    names = KaldiDir.read(speech).utt2spk
    crops = crops_of(with_bad_files(speech, tmp_path, dict.fromkeys(names, "broken")))
    with pytest.raises(
        UserError, match=r"spk0-utt0\.wav: cannot be read as audio .* \(19 utterances drawn in its place"
    ):
        crops[0, 0]
