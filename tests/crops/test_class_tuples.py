"""Crops of one class that come together: what an epoch holds, and that it depends on seed and epoch alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.crops.class_tuples import ClassTuples, check_tuples, holds_tuples
from svtoolkit.crops.sampler import BatchSampler
from svtoolkit.errors import UserError
from svtoolkit.planning.micro_batch import divisors


@st.composite
def samplers(draw):
    size = draw(st.integers(2, 4))
    micro = size * draw(st.integers(2, 3))
    batch = micro * draw(st.integers(1, 2))
    label = np.array(draw(st.lists(st.integers(0, 6), min_size=batch, max_size=60)))
    return BatchSampler(
        len(label), batch_size=batch, micro_batch=micro, seed=draw(st.integers(0, 5)), tuples=ClassTuples(label, size)
    )


@given(samplers(), st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_an_epoch_is_every_entry_once_with_as_many_tuples_as_there_can_be(sampler, epoch):
    order, (label, size) = sampler.shuffle(epoch), (sampler.tuples.label, sampler.tuples.size)
    assert sorted(order) == list(range(len(label)))
    tuples = label[order[: len(order) // size * size]].reshape(-1, size)
    whole = (tuples == tuples[:, :1]).all(axis=1)
    assert whole.sum() == sum(np.bincount(label) // size)
    np.testing.assert_array_equal(order, sampler.shuffle(epoch))


@given(samplers(), st.data())
@settings(max_examples=40, deadline=None)
def test_tuples_stay_whole_in_micro_batches_of_any_process_and_from_any_step(sampler, data):
    sampler.total_steps = 2 * sampler.steps_per_epoch
    whole = list(sampler)
    size, label = sampler.tuples.size, sampler.tuples.label
    first = [tuple(label[entry] for _, entry in batch) for batch in whole]
    order = sampler.shuffle(0)
    assert first[0] == tuple(label[order[: sampler.micro_batch]])
    assert all(len(batch) % size == 0 for batch in whole)
    sampler.start_step = data.draw(st.integers(0, sampler.total_steps))
    assert list(sampler) == whole[sampler.start_step * sampler.batch_size // sampler.micro_batch :]
    processes = sampler.batch_size // sampler.micro_batch
    shares = [
        list(
            BatchSampler(
                sampler.num_entries, batch_size=sampler.batch_size, micro_batch=sampler.micro_batch, seed=sampler.seed,
                tuples=sampler.tuples, rank=rank, processes=processes,
            )
        )
        for rank in range(processes)
    ]  # fmt: skip
    assert list(itertools.chain(*zip(*shares, strict=True))) == whole[: len(whole) // 2]


def test_partners_and_places_change_with_the_epoch_and_are_uniform():
    label = np.repeat(np.arange(10), 6)
    sampler = BatchSampler(60, batch_size=20, micro_batch=10, seed=1, tuples=ClassTuples(label, 2))
    partners, places = [], []
    for epoch in range(300):
        order = sampler.shuffle(epoch)
        place = int(np.flatnonzero(order == 0)[0])
        partners.append(int(order[place ^ 1]))
        places.append(place)
    assert set(partners) == {1, 2, 3, 4, 5}
    assert min(partners.count(other) for other in range(1, 6)) > 35  # 60 each, with a deviation of 7
    assert abs(np.mean(places) - 29.5) < 4  # with a standard error of 1


def test_entries_without_a_partner_come_too():
    label = np.array([0, 0, 0, 1, 2, 3])
    tuples = ClassTuples(label, 2)
    alone = set()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        order = tuples.gather(rng.permutation(6), rng).reshape(-1, 2)
        pairs = [pair for pair in order.tolist() if label[pair[0]] == label[pair[1]]]
        assert len(pairs) == 1
        alone |= {0, 1, 2} - set(pairs[0])
    assert alone == {0, 1, 2}, "another one each time"


@pytest.mark.parametrize(("micro_batch", "size", "holds"), [(8, 1, True), (1, 1, True), (8, 2, True), (4, 2, True),
                                                            (2, 2, False), (9, 3, True), (8, 3, False)])  # fmt: skip
def test_a_micro_batch_holds_several_tuples(micro_batch, size, holds):
    assert holds_tuples(micro_batch, size) is holds
    if holds:
        check_tuples(micro_batch, size)
    else:
        with pytest.raises(UserError, match=rf"is {micro_batch} .*\.crops is {size}: .* from {2 * size} on, or "):
            check_tuples(micro_batch, size)


def test_what_is_chosen_for_a_gpu_holds_tuples():
    assert divisors(24) == [24, 12, 8, 6, 4, 3, 2, 1]
    assert divisors(24, 2) == [24, 12, 8, 6, 4]
    assert divisors(24, 3) == [24, 12, 6]
    assert divisors(7, 2) == [7]
