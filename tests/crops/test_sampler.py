"""What the batch sampler yields, from any step, in any micro-batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.crops.sampler import BatchSampler, fitting_batch_size
from svtoolkit.errors import UserError


@st.composite
def samplers(draw, micro_batches=True):
    batch = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
    micro = (
        draw(st.sampled_from([size for size in range(1, batch + 1) if batch % size == 0])) if micro_batches else batch
    )
    entries = draw(st.integers(batch, 60))
    sampler = BatchSampler(entries, batch_size=batch, micro_batch=micro, seed=draw(st.integers(0, 5)))
    sampler.total_steps = draw(st.integers(1, 3)) * sampler.steps_per_epoch
    return sampler


@given(samplers())
@settings(max_examples=60, deadline=None)
def test_every_epoch_takes_each_entry_at_most_once_and_drops_less_than_a_batch(sampler):
    by_epoch: dict[int, list[int]] = {}
    for epoch, entry in itertools.chain.from_iterable(sampler):
        by_epoch.setdefault(epoch, []).append(entry)
    assert sorted(by_epoch) == list(range(sampler.total_steps // sampler.steps_per_epoch))
    for entries in by_epoch.values():
        assert len(set(entries)) == len(entries) == sampler.steps_per_epoch * sampler.batch_size
        assert sampler.num_entries - len(entries) < sampler.batch_size
        assert set(entries) <= set(range(sampler.num_entries))


@given(samplers(), st.data())
@settings(max_examples=60, deadline=None)
def test_beginning_at_a_step_gives_the_tail(sampler, data):
    whole = list(sampler)
    assert len(sampler) == len(whole)
    sampler.start_step = data.draw(st.integers(0, sampler.total_steps))
    accumulation = sampler.batch_size // sampler.micro_batch
    assert list(sampler) == whole[sampler.start_step * accumulation :]
    assert len(sampler) == len(whole) - sampler.start_step * accumulation


@given(samplers())
@settings(max_examples=60, deadline=None)
def test_micro_batches_are_pieces_of_the_batch(sampler):
    whole = BatchSampler(
        sampler.num_entries, batch_size=sampler.batch_size, micro_batch=sampler.batch_size, seed=sampler.seed
    )
    whole.total_steps = sampler.total_steps
    pieces = list(sampler)
    assert {len(piece) for piece in pieces} == {sampler.micro_batch}
    count = sampler.batch_size // sampler.micro_batch
    joined = [list(itertools.chain(*pieces[first : first + count])) for first in range(0, len(pieces), count)]
    assert joined == list(whole)


def test_shuffles_differ_by_epoch_and_seed_and_are_uniform():
    sampler = BatchSampler(500, batch_size=10, micro_batch=10, seed=3)
    orders = [sampler.shuffle(epoch) for epoch in range(3)]
    orders.append(BatchSampler(500, batch_size=10, micro_batch=10, seed=4).shuffle(0))
    for left, right in itertools.combinations(orders, 2):
        assert np.mean(left == right) < 0.05
    np.testing.assert_array_equal(sampler.shuffle(1), orders[1])
    assert all(sorted(order) == list(range(500)) for order in orders)
    # Where an entry lands has mean 249.5 and, over 200 epochs, a standard error of 10.2.
    places = [np.flatnonzero(sampler.shuffle(epoch) == 0)[0] for epoch in range(200)]
    assert abs(np.mean(places) - 249.5) < 45


def test_the_first_epoch_is_what_is_yielded_unless_told_otherwise():
    sampler = BatchSampler(10, batch_size=4, micro_batch=4, seed=0)
    assert sampler.steps_per_epoch == sampler.total_steps == 2
    assert list(sampler) == [[(0, int(entry)) for entry in sampler.shuffle(0)[first : first + 4]] for first in (0, 4)]


def test_fewer_entries_than_a_batch_are_refused():
    with pytest.raises(
        UserError,
        match=r"trainer\.batch_size is 9, but the training set has 8 crops an epoch .*; lower it, .*batch_size=4",
    ):
        BatchSampler(8, batch_size=9, micro_batch=9, seed=0)


@pytest.mark.parametrize(
    ("entries", "processes", "micro_batch", "expected"),
    [
        (108, 1, 1, 32),  # 3 steps
        (64, 1, 1, 32),
        (63, 1, 1, 16),
        (5, 1, 1, 2),
        (3, 1, 1, 2),
        (2, 1, 1, 2),
        (108, 3, 1, 48),
        (5, 2, 1, 4),
        (108, 1, 12, 48),
        (108, 2, 12, 48),
        (20, 1, 12, 8),  # an epoch has no two steps of so many
    ],
)
def test_the_batch_that_fits_makes_two_steps_where_it_can(entries, processes, micro_batch, expected):
    assert fitting_batch_size(entries, processes, micro_batch) == expected
    sampler = BatchSampler(entries, batch_size=expected, micro_batch=expected // processes, seed=0, processes=processes)
    assert sampler.steps_per_epoch >= 2 or entries < 4 * processes


@pytest.mark.parametrize("micro_batch", [-1, 0, 3, 5, 16])
def test_a_micro_batch_must_divide_the_batch(micro_batch):
    with pytest.raises(
        UserError, match=rf"trainer\.micro_batch is {micro_batch}, expected a divisor of .*, which is 8"
    ):
        BatchSampler(20, batch_size=8, micro_batch=micro_batch, seed=0)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 20))
def test_processes_share_the_micro_batches_of_one(processes, accumulation, micro_batch, spare):
    """What comes together does not depend on who computes it, and all have equally much to do."""
    batch = processes * accumulation * micro_batch
    common = {"batch_size": batch, "micro_batch": micro_batch, "seed": 3}
    alone = list(BatchSampler(2 * batch + spare, **common))
    shares = [
        list(BatchSampler(2 * batch + spare, **common, rank=rank, processes=processes)) for rank in range(processes)
    ]
    assert {len(share) for share in shares} == {len(alone) // processes}
    steps = len(alone) // (processes * accumulation)
    together = [
        share[number]
        for step in range(steps)
        for share in shares
        for number in range(step * accumulation, (step + 1) * accumulation)
    ]
    assert together == alone
    assert len(BatchSampler(2 * batch + spare, **common, rank=0, processes=processes)) == len(shares[0])
