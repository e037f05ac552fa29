"""A crop in a worker and a row of a batch: the same changes, to the same result."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch
from sounds import RATE, augmenter_of, hiss, power_db, small_noises, small_rirs
from torch.utils.data import DataLoader

from svtoolkit.augmentation import augmenter as module
from svtoolkit.augmentation.augmenter import UNCHANGED, Augmenter, ChangedRows, collate_changes

SAMPLES = 6000
TOLERANCE = 2e-5
"""Of sums over some thousand samples near full scale in float32; a step of the codec at such levels is larger."""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    return small_noises(folder), small_rirs(folder)


@pytest.fixture(scope="module")
def augmenter(libraries) -> Augmenter:
    return augmenter_of(*libraries, gain=[-6, 6])


@pytest.fixture(scope="module")
def with_telephone(libraries) -> Augmenter:
    return augmenter_of(*libraries, gain=[-6, 6], telephone_probability=0.3)


def prepared(augmenter: Augmenter, count: int):
    """Crops and what happens to them."""
    drawn = [augmenter.draw(np.random.default_rng([3, 1, entry])) for entry in range(count)]
    crops = np.stack([hiss(SAMPLES, entry) for entry in range(count)])
    return crops, [augmenter.load(crop, SAMPLES) for crop in drawn]


def responses_of(loaded) -> list[np.ndarray]:
    return [crop["reverberation"]["response"] for crop in loaded if "reverberation" in crop]


def test_a_worker_and_a_batch_do_the_same(augmenter, libraries):
    crops, loaded = prepared(augmenter, 40)
    assert len({len(response) for response in responses_of(loaded)}) > 1, "so that some are filled up"
    rirs = [libraries[1].response(index, RATE).copy() for index in range(3)]
    in_worker = np.stack([augmenter.apply_to_crop(*pair) for pair in zip(crops, loaded, strict=True)])
    before = torch.from_numpy(crops.copy())
    in_batch = augmenter.apply(before, collate_changes(loaded))
    np.testing.assert_allclose(in_batch.numpy(), in_worker, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(before.numpy(), crops)
    for index, rir in enumerate(rirs):
        np.testing.assert_array_equal(libraries[1].response(index, RATE), rir)  # those that are kept are not changed
    for row, changes in enumerate(loaded):
        assert np.array_equal(in_batch[row].numpy(), crops[row]) == (not changes)
        assert np.array_equal(in_worker[row], crops[row]) == (not changes)


def test_a_worker_and_a_batch_do_the_same_on_the_telephone(libraries):
    """Rounding may move a sample to the next step of the codec, which is rare and 40 dB down."""
    augmenter = augmenter_of(*libraries, probability=1.0, telephone_probability=1.0)
    crops, loaded = prepared(augmenter, 12)
    assert {crop["telephone"]["law"] for crop in loaded} == {0, 1}
    in_batch = augmenter.apply(torch.from_numpy(crops), collate_changes(loaded)).numpy()
    for row, changes in enumerate(loaded):
        in_worker = augmenter.apply_to_crop(crops[row], changes)
        difference = in_batch[row] - in_worker
        assert np.median(np.abs(difference)) < 1e-4
        assert np.sum(difference**2) < 1e-5 * np.sum(in_worker**2)


@pytest.mark.parametrize("rows_at_once", [1, 3, 64])
def test_a_row_does_not_depend_on_its_batch(augmenter, rows_at_once, monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows_at_once)
    crops, loaded = prepared(augmenter, 20)
    waveforms = torch.from_numpy(crops)
    together = augmenter.apply(waveforms, collate_changes(loaded))
    for size in (1, 7):
        parts = [
            augmenter.apply(waveforms[begin : begin + size], collate_changes(loaded[begin : begin + size]))
            for begin in range(0, 20, size)
        ]
        torch.testing.assert_close(torch.cat(parts), together, rtol=0, atol=TOLERANCE)
    order = torch.from_numpy(np.random.default_rng(0).permutation(20))
    shuffled = augmenter.apply(waveforms[order], collate_changes([loaded[row] for row in order]))
    torch.testing.assert_close(shuffled, together[order], rtol=0, atol=TOLERANCE)


def test_reverberation_then_noise_then_gain(augmenter, libraries):
    """The ratio is to the reverberant speech, and the gain is of both; in whatever order they are listed."""
    noises, rirs = libraries
    response, noise = rirs.response(1, RATE), noises.categories["noise"].read(2, 0.1, SAMPLES, RATE)
    speech = hiss(SAMPLES, 8)
    loaded = {
        "gain": {"gain_db": -4.0},
        "noise": {"noise": noise, "snr_db": 7.0},
        "reverberation": {"response": response},
    }
    changed = augmenter.apply_to_crop(speech, loaded).astype(np.float64)
    reverberant = np.convolve(speech.astype(np.float64), response)[:SAMPLES]
    reverberant *= np.sqrt(np.mean(speech.astype(np.float64) ** 2) / np.mean(reverberant**2))
    added = changed * 10 ** (4 / 20) - reverberant
    assert power_db(reverberant) - power_db(added) == pytest.approx(7.0, abs=0.01)
    assert np.dot(added, noise) / np.linalg.norm(added) / np.linalg.norm(noise) == pytest.approx(1.0, abs=1e-5)


def test_what_is_left_alone_is_the_crop_itself(augmenter):
    speech = hiss(100)
    assert augmenter.apply_to_crop(speech, {}) is speech
    waveforms = torch.from_numpy(np.stack([speech, speech]))
    assert torch.equal(augmenter.apply(waveforms, collate_changes([{}, {}])), waveforms)


def test_a_change_that_is_not_in_the_list_is_not_passed_over(augmenter):
    crops, loaded = prepared(augmenter, 10)
    with pytest.raises(ValueError, match="not in list"):
        UNCHANGED.apply(torch.from_numpy(crops), collate_changes(loaded))


def tensors_of(changes: dict[str, ChangedRows]) -> list[torch.Tensor]:
    return [tensor for rows in changes.values() for tensor in (rows.rows, *rows.parameters.values())]


def test_rows_without_change_cost_nothing_to_send(with_telephone):
    assert collate_changes([{}] * 64) == {}
    _, loaded = prepared(with_telephone, 30)
    few, padded = collate_changes(loaded), collate_changes(loaded + [{}] * 200)
    assert list(few) == list(padded)
    assert all(torch.equal(one, other) for one, other in zip(tensors_of(few), tensors_of(padded), strict=True))


def test_what_a_batch_holds(with_telephone):
    _, loaded = prepared(with_telephone, 30)
    batch = collate_changes(loaded)
    assert batch.keys() == {"reverberation", "noise", "gain", "telephone"}
    for name, (rows, parameters) in batch.items():
        assert rows.dtype == torch.int64
        assert rows.tolist() == [row for row, crop in enumerate(loaded) if name in crop]
        for key, values in parameters.items():
            assert values.dtype == (torch.int64 if key == "law" else torch.float32)
            assert values.ndim == (2 if key in ("noise", "response") else 1)
            assert len(values) == len(rows)
    assert batch["noise"].parameters["noise"].shape == (len(batch["noise"].rows), SAMPLES)
    rows, parameters = batch["reverberation"]
    assert parameters["response"].shape[1] == max(map(len, responses_of(loaded)))
    for row, padded in zip(rows.tolist(), parameters["response"], strict=True):
        response = loaded[row]["reverberation"]["response"]
        np.testing.assert_array_equal(padded[: len(response)], response)
        assert not padded[len(response) :].any()


def test_it_travels_as_batches_do(with_telephone):
    """Through the queue of a worker, as part of a larger tuple, and to a device."""
    _, loaded = prepared(with_telephone, 4)
    if multiprocessing.get_start_method() != "fork":
        pytest.skip("the data of this test reach a worker by fork alone")
    loader = DataLoader([0, 1, 2, 3], batch_size=4, collate_fn=lambda rows: collate_changes(loaded), num_workers=1)
    (arrived,) = list(loader)
    assert {type(rows) for rows in arrived.values()} == {ChangedRows}
    sent = collate_changes(loaded)
    there = {name: rows.to(torch.device("cpu")) for name, rows in arrived.items()}
    assert list(sent) == list(there)
    assert all(torch.equal(one, other) for one, other in zip(tensors_of(sent), tensors_of(there), strict=True))
    moved = {name: rows.to(torch.device("meta")) for name, rows in sent.items()}
    assert {tensor.device.type for tensor in tensors_of(moved)} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_does_the_same(augmenter):
    crops, loaded = prepared(augmenter, 100)
    batch, waveforms = collate_changes(loaded), torch.from_numpy(crops)
    device = torch.device("cuda")
    on_gpu = augmenter.apply(waveforms.to(device), {name: rows.to(device) for name, rows in batch.items()}).cpu()
    torch.testing.assert_close(on_gpu, augmenter.apply(waveforms, batch), rtol=0, atol=TOLERANCE)
