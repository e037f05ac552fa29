"""Training crops: what is decoded, how long they are, what speed does, and that nothing but the seed decides."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_runs import tiny_config

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import CropDataset, CropGeometry, collate_crops
from svtoolkit.crops.loader import load_crops
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import BatchSampler
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import features_config, front_end_of

RATE = 16000
SAMPLES = 4000
GEOMETRY = CropGeometry(RATE, SAMPLES, frames=23, bins=24)
NO_MASKS = SpecAugment(0.0, 0, 0, 0, 0)
SPEEDS = (1.0, 0.9, 1.1)


def write_corpus(folder: Path, files: dict[str, np.ndarray], rate: int = RATE, **options) -> KaldiDir:
    """One recording of one speaker for each array; samples that 16 bits hold exactly are kept exactly."""
    kaldi_dir = KaldiDir()
    for name, samples in files.items():
        soundfile.write(folder / f"{name}.wav", samples, rate, **options)
        kaldi_dir.wav_scp[name] = str(folder / f"{name}.wav")
        kaldi_dir.utt2spk[name] = name.partition("-")[0]
    return kaldi_dir


def ramp(samples: int) -> np.ndarray:
    """Every sample tells its own place."""
    return (np.arange(samples) - 32768) / 32768


def tone(hertz: float, samples: int) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / RATE)


def crops_of(kaldi_dir: KaldiDir, speeds=(1.0,), **options) -> CropDataset:
    training_set = TrainingSet.build(Manifest.of(kaldi_dir), speeds=speeds, min_seconds=0.0)
    chosen = {"dither": 0.0, "int16_scale": True, "seed": 1, **options}
    return CropDataset(training_set, chosen.pop("geometry", GEOMETRY), chosen.pop("spec_augment", NO_MASKS), **chosen)


def place(crop: np.ndarray) -> int:
    """First sample of a crop of a ramp."""
    return round(float(crop[0]) * 32768) + 32768


def same_item(left, right) -> bool:
    return all(np.array_equal(ours, theirs) for ours, theirs in zip(left, right, strict=True))


def test_a_crop_without_noise_is_a_stretch_of_the_file(tmp_path):
    whole = ramp(60_000).astype(np.float32)
    crops = crops_of(write_corpus(tmp_path, {"ann-1": whole}))
    begins = []
    for epoch in range(200):
        crop, label, masks, entry, changes, bad, warp = crops[epoch, 0]
        assert (warp, changes, bad) == (None, {}, {})
        assert (crop.dtype, crop.shape, label, masks.shape, entry) == (np.float32, (SAMPLES,), 0, (0, 2), 0)
        begins.append(place(crop))
        np.testing.assert_array_equal(crop, whole[begins[-1] : begins[-1] + SAMPLES])
    # Anywhere in the file, each place equally likely: the mean has a standard error of 1140 samples.
    assert min(begins) < 2000
    assert max(begins) > 54_000
    assert abs(np.mean(begins) - 28_000) < 5000


def test_a_draw_is_a_function_of_seed_epoch_and_entry(tmp_path):
    files = {f"{speaker}-{number}": ramp(9000) for speaker in ("ann", "bob") for number in (1, 2)}
    kaldi_dir = write_corpus(tmp_path, files)
    options = {"speeds": SPEEDS, "dither": 1.0, "spec_augment": SpecAugment(0.5, 2, 5, 1, 3)}
    crops = crops_of(kaldi_dir, **options)
    order = [(epoch, entry) for epoch in range(3) for entry in range(len(crops))]
    first = {item: crops[item] for item in order}
    np.random.default_rng(0).shuffle(order)
    np.random.seed(5)
    torch.manual_seed(5)
    copy = pickle.loads(pickle.dumps(crops))
    assert all(same_item(copy[item], first[item]) for item in map(tuple, order))
    assert not any(same_item(first[0, entry], first[1, entry]) for entry in range(len(crops)))
    other = crops_of(kaldi_dir, seed=2, **options)
    assert not any(same_item(other[item], first[item]) for item in first)


@given(
    seconds=st.floats(0.02, 1.2),
    speed=st.sampled_from([0.5, 0.7, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3, 2.0]),
    samples=st.integers(400, 6000),
    epoch=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_crop_has_its_length_at_any_speed_and_of_any_utterance(tmp_path, seconds, speed, samples, epoch):
    kaldi_dir = write_corpus(tmp_path, {"ann-1": tone(200, round(seconds * RATE))})
    geometry = CropGeometry(RATE, samples, frames=1, bins=4)
    crop = crops_of(kaldi_dir, speeds=(speed,), geometry=geometry)[epoch, 0][0]
    assert crop.shape == (samples,)
    assert crop.dtype == np.float32
    assert np.isfinite(crop).all()


@pytest.mark.parametrize("count", [2, 7, 1300, 3999])
def test_a_short_utterance_is_repeated(tmp_path, count):
    whole = (ramp(count) * (-1) ** np.arange(count)).astype(np.float32)
    crop = crops_of(write_corpus(tmp_path, {"ann-1": whole}))[4, 0][0]
    repeated = np.tile(whole, SAMPLES // count + 1)[:SAMPLES]
    np.testing.assert_array_equal(crop, repeated)


@pytest.mark.parametrize("speed", [0.9, 1.1, 1.3])
def test_a_long_utterance_is_not_repeated_at_any_speed(tmp_path, speed):
    """A slowly rising signal has no fall in a crop of it: not one sample too few comes out of the rate conversion."""
    kaldi_dir = write_corpus(tmp_path, {"ann-1": ramp(60_000)})
    for samples in range(3990, 4001):
        geometry = CropGeometry(RATE, samples, frames=1, bins=4)
        crop = crops_of(kaldi_dir, speeds=(speed,), geometry=geometry)[0, 0][0]
        inner = crop[200:-200]
        np.testing.assert_allclose(np.diff(inner), speed / 32768, rtol=0.2)
        # The filter rings at the edges; a jump back to the beginning would be 0.1 wide.
        assert abs(crop[-1] - crop[-201] - 200 * speed / 32768) < 0.05


@pytest.mark.parametrize("speed", SPEEDS)
def test_speed_changes_the_pitch_by_its_factor(tmp_path, speed):
    crops = crops_of(write_corpus(tmp_path, {"ann-1": tone(1000, 3 * RATE)}), speeds=SPEEDS)
    crop = crops[0, SPEEDS.index(speed)][0]
    spectrum = np.abs(np.fft.rfft(crop * np.hanning(SAMPLES), 1 << 17))
    peak = np.argmax(spectrum) * RATE / (1 << 17)
    assert peak == pytest.approx(1000 * speed, abs=0.5)
    assert np.abs(crop[500:-500]).max() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("speed", SPEEDS)
def test_speed_changes_the_duration_by_its_inverse(tmp_path, speed):
    """A whole utterance of 2000 samples, that is repeated after 2000 / speed."""
    click = np.zeros(2000)
    click[1000] = 0.9
    crops = crops_of(write_corpus(tmp_path, {"ann-1": click}), speeds=SPEEDS)
    crop = crops[0, SPEEDS.index(speed)][0]
    peaks = np.flatnonzero(crop > 0.4)
    assert peaks[0] == pytest.approx(1000 / speed, abs=1)
    assert peaks[-1] - peaks[0] == pytest.approx(2000 / speed, abs=2)


def test_only_the_slice_is_decoded(tmp_path, decoded):
    kaldi_dir = write_corpus(tmp_path, {"ann-1": ramp(60_000)})
    crops = crops_of(kaldi_dir, speeds=SPEEDS)
    for entry, speed in enumerate(SPEEDS):
        crops[0, entry]
        assert decoded.pop() == int(np.ceil(SAMPLES * speed))
    assert not decoded


def test_labels_are_speakers_at_a_speed(tmp_path):
    files = {f"{speaker}-1": ramp(5000) for speaker in ("ann", "bob", "cid")}
    crops = crops_of(write_corpus(tmp_path, files), speeds=SPEEDS)
    assert len(crops) == 9
    assert [crops[0, entry][1] for entry in range(9)] == list(range(9))


def test_crops_stay_within_their_segment(tmp_path):
    kaldi_dir = write_corpus(tmp_path, {"tape": ramp(50_000)})
    kaldi_dir.utt2spk = {"ann-1": "ann", "ann-2": "ann", "bob-1": "bob"}
    bounds = {"ann-1": (0, 6000), "ann-2": (6000, 20_008), "bob-1": (20_008, 50_000)}
    for name, (begin, end) in bounds.items():
        kaldi_dir.segments[name] = Segment("tape", begin / RATE, end / RATE if name != "bob-1" else None)
    crops = crops_of(kaldi_dir)
    for entry, name in enumerate(sorted(bounds)):
        begins = [place(crops[epoch, entry][0]) for epoch in range(150)]
        begin, end = bounds[name]
        assert min(begins) >= begin
        assert max(begins) + SAMPLES <= end
        assert max(begins) - min(begins) > 0.8 * (end - begin - SAMPLES)


def test_a_short_segment_is_repeated_without_its_neighbours(tmp_path):
    kaldi_dir = write_corpus(tmp_path, {"tape": ramp(50_000)})
    kaldi_dir.utt2spk = {"ann-1": "ann"}
    kaldi_dir.segments["ann-1"] = Segment("tape", 8000 / RATE, 9000 / RATE)
    crop = crops_of(kaldi_dir)[0, 0][0]
    np.testing.assert_array_equal(crop, np.tile(ramp(50_000)[8000:9000].astype(np.float32), 4))


@pytest.mark.parametrize(("int16_scale", "deviation"), [(True, 3.0 / 32768), (False, 3.0)])
def test_dither_is_white_noise_of_its_deviation(tmp_path, int16_scale, deviation):
    kaldi_dir = write_corpus(tmp_path, {"ann-1": tone(200, 20_000) / 50})
    clean, dithered = crops_of(kaldi_dir), crops_of(kaldi_dir, dither=3.0, int16_scale=int16_scale)
    found = [dithered[epoch, 0][0].astype(np.float64) - clean[epoch, 0][0] for epoch in range(25)]
    noise = np.stack(found) / deviation
    assert noise.std() == pytest.approx(1.0, abs=0.02)
    assert noise.mean() == pytest.approx(0.0, abs=0.02)
    assert np.mean(noise**4) == pytest.approx(3.0, abs=0.15)
    assert np.mean(noise[:, 1:] * noise[:, :-1]) == pytest.approx(0.0, abs=0.02)
    assert np.abs(np.corrcoef(noise) - np.eye(25)).max() < 0.08


def test_dither_is_in_16_bit_units_of_a_front_end_that_is_not(tmp_path):
    voice = tone(200, 20_000) / 50
    kaldi_dir = write_corpus(tmp_path, {"ann-1": voice, "bob-1": voice})
    kaldi_dir.write(tmp_path / "data")
    config = tiny_config(tmp_path / "data", tmp_path / "exp", validation__speakers=0, augment__spec_probability=0.0)
    config.features = features_config({"backend": "clova", "num_bins": 24})
    config.data.speeds = [1.0]
    front_end = front_end_of(config.features)
    crops = [
        TrainingData(replace(config, augment=replace(config.augment, dither=dither))).crops(front_end)[0, 0][0]
        for dither in (0.0, 3.0)
    ]
    assert (crops[1] - crops[0]).std() == pytest.approx(3.0 / 32768, rel=0.1)


def test_dither_and_masks_do_not_move_the_crop(tmp_path):
    kaldi_dir = write_corpus(tmp_path, {"ann-1": ramp(60_000)})
    plain, noisy = crops_of(kaldi_dir), crops_of(kaldi_dir, dither=1.0, spec_augment=SpecAugment(1.0, 2, 9, 2, 9))
    for epoch in range(20):
        difference = noisy[epoch, 0][0] - plain[epoch, 0][0]
        assert 0 < np.abs(difference).max() < 10 / 32768


def test_another_rate_is_converted_where_that_is_allowed(tmp_path):
    samples = 0.5 * np.sin(2 * np.pi * 500 * np.arange(8000) / 8000)
    kaldi_dir = write_corpus(tmp_path, {"ann-1": samples}, rate=8000)
    crop = crops_of(kaldi_dir, resample=True)[0, 0][0]
    assert crop.shape == (SAMPLES,)
    peak = np.argmax(np.abs(np.fft.rfft(crop * np.hanning(SAMPLES), 1 << 17))) * RATE / (1 << 17)
    assert peak == pytest.approx(500, abs=0.5)
    with pytest.raises(UserError, match=r"ann-1\.wav: sample rate is 8000 Hz, expected 16000 Hz"):
        crops_of(kaldi_dir)[0, 0]


def test_the_chosen_channel_is_taken(tmp_path):
    kaldi_dir = write_corpus(tmp_path, {"ann-1": np.stack([np.zeros(9000), ramp(9000)], axis=1)})
    crop = crops_of(kaldi_dir, channel=1)[0, 0][0]
    np.testing.assert_array_equal(crop, ramp(9000)[place(crop) :][:SAMPLES].astype(np.float32))
    with pytest.raises(UserError, match=r"2 channels, expected one; choose one with data\.channel"):
        crops_of(kaldi_dir)[0, 0]


def test_an_utterance_that_ends_before_its_table_says_is_repeated_or_named(tmp_path):
    kaldi_dir = write_corpus(tmp_path, {"ann-1": ramp(5000)})
    kaldi_dir.utt2dur["ann-1"] = 0.5  # 8000 samples
    crops = crops_of(kaldi_dir)
    for epoch in range(20):
        assert crops[epoch, 0][0].shape == (SAMPLES,)
    kaldi_dir.segments["ann-1"] = Segment("ann-1", 1.0, 2.0)
    with pytest.raises(
        UserError, match=r"ann-1\.wav: utterance 'ann-1' has no samples at 0\.\d\d s of it; .*svt validate"
    ):
        crops_of(kaldi_dir)[0, 0]


def test_negative_dither_is_refused_before_any_crop(tmp_path):
    with pytest.raises(UserError, match=r"augment\.dither is -1\.0, expected a standard deviation of 0 or more"):
        crops_of(write_corpus(tmp_path, {"ann-1": ramp(5000)}), dither=-1.0)


def test_collated_items_keep_their_order_and_types(tmp_path):
    files = {f"{speaker}-1": ramp(5000) for speaker in ("ann", "bob", "cid")}
    crops = crops_of(write_corpus(tmp_path, files), spec_augment=SpecAugment(1.0, 2, 5, 1, 3))
    items = [crops[0, entry] for entry in (2, 0, 1, 0)]
    batch = collate_crops(items)
    *tensors, changes, bad, warps = batch
    assert (changes, bad, warps) == ({}, {}, None)
    assert [tensor.dtype for tensor in tensors] == [torch.float32, torch.int64, torch.int64, torch.int64]
    assert [tuple(tensor.shape) for tensor in tensors] == [(4, SAMPLES), (4,), (4, 3, 2), (4,)]
    assert batch.entries.tolist() == batch.labels.tolist() == [2, 0, 1, 0]
    for row, item in enumerate(items):
        np.testing.assert_array_equal(batch.waveforms[row], item[0])
        np.testing.assert_array_equal(batch.masks[row], item[2])


def load(crops: CropDataset, num_workers: int):
    sampler = BatchSampler(len(crops), batch_size=4, micro_batch=2, seed=0)
    sampler.total_steps = 2 * sampler.steps_per_epoch
    return load_crops(crops, sampler, num_workers=num_workers, pin_memory=False)


def test_the_number_of_workers_changes_nothing(tmp_path):
    files = {f"{speaker}-{number}": ramp(9000) for speaker in ("ann", "bob") for number in (1, 2)}
    crops = crops_of(
        write_corpus(tmp_path, files), speeds=SPEEDS, dither=1.0, spec_augment=SpecAugment(0.5, 1, 9, 1, 5)
    )
    torch.manual_seed(1)
    generator_before = torch.get_rng_state()
    alone, one, two = (list(load(crops, workers)) for workers in (0, 1, 2))
    assert len(alone) == 12
    for left, middle, right in zip(alone, one, two, strict=True):
        for ours, theirs, others in zip(left[:4], middle[:4], right[:4], strict=True):
            assert torch.equal(ours, theirs)
            assert torch.equal(ours, others)
    assert torch.equal(torch.get_rng_state(), generator_before), "loading takes no number from torch's generator"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_are_children_of_this_process_whatever_python_would_do(tmp_path):
    """Another process in between would outlive a run that is killed, and they would outlive it too."""
    multiprocessing.set_start_method("forkserver", force=True)  # the default from Python 3.14 on
    batches = load(crops_of(write_corpus(tmp_path, {f"ann-{number}": ramp(9000) for number in range(4)})), 1)
    try:
        next(batches)
        (worker,) = multiprocessing.active_children()
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[1]) == os.getpid()
    finally:
        batches.close()
        multiprocessing.set_start_method(None, force=True)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_of_another_rate_is_one_sentence_from_any_process(tmp_path, num_workers):
    files = {f"bob-{number}": ramp(9000) for number in range(4)}
    kaldi_dir = write_corpus(tmp_path, files, rate=8000)
    with pytest.raises(UserError) as caught:
        list(load(crops_of(kaldi_dir), num_workers))
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "bob-"))
    assert "sample rate is 8000 Hz, expected 16000 Hz; set features.sample_rate=8000 where" in message
    assert "Traceback" not in message
    assert "\n" not in message
