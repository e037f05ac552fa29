"""A crop in a worker and a row of a batch: the same changes, to the same result."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch
from sounds import RATE, hiss, power_db, small_noises, small_rooms
from torch.utils.data import DataLoader

from svtoolkit.augmentation import (
    AugmentationBatch,
    AugmentationPolicy,
    Augmenter,
    Materials,
    Plan,
    Slice,
    apply,
    apply_batch,
    apply_plan,
    collate_plans,
)
from svtoolkit.augmentation.plan import CLEAN

SAMPLES = 6000
EVERYTHING = AugmentationPolicy(gain=(-6, 6), telephone_probability=0.3)
TOLERANCE = 2e-5
"""Of sums over some thousand samples near full scale in float32; a step of the codec at such levels is larger."""


@pytest.fixture(scope="module")
def augmenter(tmp_path_factory) -> Augmenter:
    folder = tmp_path_factory.mktemp("sounds")
    return Augmenter(EVERYTHING, small_noises(folder), small_rooms(folder), sample_rate=RATE)


def prepared(augmenter: Augmenter, count: int, policy: AugmentationPolicy | None = None):
    """Crops and what shall happen to them."""
    source = augmenter
    if policy is not None:
        source = Augmenter(policy, augmenter.noises, augmenter.rooms, sample_rate=RATE)
    plans = [source.draw(np.random.default_rng([3, 1, entry]), SAMPLES) for entry in range(count)]
    crops = np.stack([hiss(SAMPLES, entry) for entry in range(count)])
    return crops, [(plan, source.load(plan, SAMPLES)) for plan in plans]


def test_a_worker_and_a_batch_do_the_same(augmenter):
    crops, pairs = prepared(augmenter, 40, AugmentationPolicy(gain=(-6, 6)))
    lengths = {len(materials.response) for _, materials in pairs if materials.response is not None}
    assert len(lengths) > 1, "so that some are filled up"
    rooms = [augmenter.rooms.response(index, RATE).copy() for index in range(3)]
    in_worker = np.stack([apply_plan(crop, *pair, RATE) for crop, pair in zip(crops, pairs, strict=True)])
    before = torch.from_numpy(crops.copy())
    in_batch = apply_batch(before, collate_plans(pairs, SAMPLES), RATE)
    np.testing.assert_allclose(in_batch.numpy(), in_worker, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(before.numpy(), crops)
    for index, room in enumerate(rooms):
        np.testing.assert_array_equal(
            augmenter.rooms.response(index, RATE), room
        )  # those that are kept are not changed
    for row, (plan, _) in enumerate(pairs):
        assert np.array_equal(in_batch[row].numpy(), crops[row]) == plan.is_clean
        assert np.array_equal(in_worker[row], crops[row]) == plan.is_clean


def test_a_worker_and_a_batch_do_the_same_on_the_telephone(augmenter):
    """Rounding may move a sample to the next step of the codec, which is rare and 40 dB down."""
    policy = AugmentationPolicy(probability=1.0, telephone_probability=1.0)
    crops, pairs = prepared(augmenter, 12, policy)
    assert {plan.telephone for plan, _ in pairs} == {"mu", "a"}
    in_batch = apply_batch(torch.from_numpy(crops), collate_plans(pairs, SAMPLES), RATE).numpy()
    for row, pair in enumerate(pairs):
        in_worker = apply_plan(crops[row], *pair, RATE)
        difference = in_batch[row] - in_worker
        assert np.median(np.abs(difference)) < 1e-4
        assert np.sum(difference**2) < 1e-5 * np.sum(in_worker**2)


@pytest.mark.parametrize("rows_at_once", [1, 3, 64])
def test_a_row_does_not_depend_on_its_batch(augmenter, rows_at_once, monkeypatch):
    monkeypatch.setattr(apply, "ROWS_AT_ONCE", rows_at_once)
    crops, pairs = prepared(augmenter, 20, AugmentationPolicy(gain=(-6, 6)))
    waveforms = torch.from_numpy(crops)
    together = apply_batch(waveforms, collate_plans(pairs, SAMPLES), RATE)
    for size in (1, 7):
        parts = [
            apply_batch(waveforms[begin : begin + size], collate_plans(pairs[begin : begin + size], SAMPLES), RATE)
            for begin in range(0, 20, size)
        ]
        torch.testing.assert_close(torch.cat(parts), together, rtol=0, atol=TOLERANCE)
    order = torch.from_numpy(np.random.default_rng(0).permutation(20))
    shuffled = apply_batch(waveforms[order], collate_plans([pairs[row] for row in order], SAMPLES), RATE)
    torch.testing.assert_close(shuffled, together[order], rtol=0, atol=TOLERANCE)


def test_room_then_noise_then_gain(augmenter):
    """The ratio is to the reverberant speech, and the gain is of both."""
    rooms, noises = augmenter.rooms, augmenter.noises
    response, noise = rooms.response(1, RATE), noises.categories["noise"].read(2, 0.1, SAMPLES, RATE)
    speech = hiss(SAMPLES, 8)
    plan = Plan(
        response=1,
        category="noise",
        slices=(Slice(2, 0.1),),
        snr_db=7.0,
        gain_db=-4.0,
    )
    changed = apply_plan(speech, plan, Materials(noise, response), RATE).astype(np.float64)
    reverberant = np.convolve(speech.astype(np.float64), response)[:SAMPLES]
    reverberant *= np.sqrt(np.mean(speech.astype(np.float64) ** 2) / np.mean(reverberant**2))
    added = changed * 10 ** (4 / 20) - reverberant
    assert power_db(reverberant) - power_db(added) == pytest.approx(7.0, abs=0.01)
    assert np.dot(added, noise) / np.linalg.norm(added) / np.linalg.norm(noise) == pytest.approx(1.0, abs=1e-5)


def test_what_is_clean_is_the_crop_itself():
    speech = hiss(100)
    assert apply_plan(speech, CLEAN, Materials(), RATE) is speech
    waveforms = torch.from_numpy(np.stack([speech, speech]))
    nothing = collate_plans([(CLEAN, Materials())] * 2, 100)
    assert torch.equal(apply_batch(waveforms, nothing, RATE), waveforms)


def test_rows_without_change_cost_nothing_to_send(augmenter):
    nothing = collate_plans([(CLEAN, Materials())] * 64, SAMPLES)
    assert sum(tensor.nbytes for tensor in nothing) == 0
    _, pairs = prepared(augmenter, 30)
    few, padded = collate_plans(pairs, SAMPLES), collate_plans(pairs + [(CLEAN, Materials())] * 200, SAMPLES)
    assert all(torch.equal(one, other) for one, other in zip(few, padded, strict=True))


def test_what_a_batch_holds(augmenter):
    _, pairs = prepared(augmenter, 30)
    batch = collate_plans(pairs, SAMPLES)
    for rows, touched in [
        (batch.response_rows, [plan.response is not None for plan, _ in pairs]),
        (batch.noise_rows, [plan.category is not None for plan, _ in pairs]),
        (batch.gain_rows, [plan.gain_db != 0 for plan, _ in pairs]),
        (batch.mu_rows, [plan.telephone == "mu" for plan, _ in pairs]),
        (batch.a_rows, [plan.telephone == "a" for plan, _ in pairs]),
    ]:
        assert rows.dtype == torch.int64
        assert rows.tolist() == np.flatnonzero(touched).tolist()
        assert len(rows)
    assert batch.noises.shape == (len(batch.noise_rows), SAMPLES)
    longest = max(len(materials.response) for _, materials in pairs if materials.response is not None)
    assert batch.responses.shape == (len(batch.response_rows), longest)
    for place, row in enumerate(batch.response_rows.tolist()):
        response = pairs[row][1].response
        np.testing.assert_array_equal(batch.responses[place, : len(response)], response)
        assert not batch.responses[place, len(response) :].any()
    assert all(tensor.dtype == torch.float32 for tensor in (batch.noises, batch.responses, batch.snr_db, batch.gain_db))


def test_it_travels_as_batches_do(augmenter):
    """Through the queue of a worker, as part of a larger tuple, and to a device."""
    _, pairs = prepared(augmenter, 4)
    if multiprocessing.get_start_method() != "fork":
        pytest.skip("the data of this test reach a worker by fork alone")
    loader = DataLoader(
        [0, 1, 2, 3], batch_size=4, collate_fn=lambda rows: collate_plans(pairs, SAMPLES), num_workers=1
    )
    (arrived,) = list(loader)
    assert type(arrived) is AugmentationBatch
    sent = collate_plans(pairs, SAMPLES)
    assert all(torch.equal(one, other) for one, other in zip(sent, arrived.to(torch.device("cpu")), strict=True))
    assert {tensor.device.type for tensor in sent.to(torch.device("meta"))} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_does_the_same(augmenter):
    crops, pairs = prepared(augmenter, 100, AugmentationPolicy(gain=(-6, 6)))
    batch, waveforms = collate_plans(pairs, SAMPLES), torch.from_numpy(crops)
    device = torch.device("cuda")
    on_gpu = apply_batch(waveforms.to(device), batch.to(device), RATE).cpu()
    torch.testing.assert_close(on_gpu, apply_batch(waveforms, batch, RATE), rtol=0, atol=TOLERANCE)
