from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError


def make_speakers(*sizes: int) -> dict[str, list[str]]:
    return {f"s{n:03}": [f"s{n:03}-{utt:05}" for utt in range(size)] for n, size in enumerate(sizes)}


def pairs_of(trials: Trials) -> list[tuple[str, str, bool]]:
    return list(zip(trials.enrol, trials.test, trials.target.tolist(), strict=True))


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    ceiling=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_lists_that_are_made(sizes, ceiling, seed):
    spk2utt = make_speakers(*sizes)
    targets = sum(min(ceiling, math.comb(size, 2)) for size in sizes)
    crossed = sum(one * two for one, two in itertools.combinations(sizes, 2))
    if not targets or not crossed:
        with pytest.raises(UserError, match="cannot make trials"):
            make_trials(spk2utt, seed=seed, targets_per_speaker=ceiling)
        return
    trials = make_trials(spk2utt, seed=seed, targets_per_speaker=ceiling)
    assert int(trials.target.sum()) == targets
    assert len(trials) - targets == min(targets, crossed)
    assert len({frozenset(pair[:2]) for pair in pairs_of(trials)}) == len(trials)
    for enrol, test, target in pairs_of(trials):
        assert enrol != test
        assert (enrol[:4] == test[:4]) == target
        assert enrol in spk2utt[enrol[:4]]
        assert test in spk2utt[test[:4]]
    again = make_trials(dict(reversed(spk2utt.items())), seed=seed, targets_per_speaker=ceiling)
    assert pairs_of(again) == pairs_of(trials)


def test_ceiling_on_targets_holds_for_each_speaker():
    trials = make_trials(make_speakers(10, 10, 3, 1), seed=0, targets_per_speaker=20)
    counts = Counter(enrol[:4] for enrol, _, target in pairs_of(trials) if target)
    assert counts == {"s000": 20, "s001": 20, "s002": 3}


def test_seed_changes_the_draw():
    spk2utt = make_speakers(10, 10, 10)
    first, second = (pairs_of(make_trials(spk2utt, seed=seed, targets_per_speaker=5)) for seed in (0, 1))
    assert first != second


def test_every_pair_of_two_speakers_is_equally_likely():
    """Speakers of 1, 2 and 3 utterances: 11 pairs, of which 4 are drawn, 2200 times."""
    spk2utt = make_speakers(1, 2, 3)
    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(2200):
        trials = make_trials(spk2utt, seed=seed)
        counts.update((enrol, test) for enrol, test, target in pairs_of(trials) if not target)
    assert len(counts) == 11
    # 4 standard deviations of a binomial count around 2200 * 4 / 11 = 800.
    assert all(abs(count - 800) < 4 * math.sqrt(800 * (1 - 4 / 11)) for count in counts.values())


@pytest.mark.parametrize("sizes", [(300, 1), (20_000, 20_000, 1, 1, 1)])
def test_few_pairs_or_very_many_are_drawn_alike(sizes):
    trials = make_trials(make_speakers(*sizes), seed=0, targets_per_speaker=50_000)
    targets = sum(min(50_000, math.comb(size, 2)) for size in sizes)
    crossed = sum(one * two for one, two in itertools.combinations(sizes, 2))
    assert (int(trials.target.sum()), int((~trials.target).sum())) == (targets, min(targets, crossed))


def test_impossible_ceiling():
    with pytest.raises(UserError, match="targets_per_speaker is 0, expected 1 or more"):
        make_trials(make_speakers(3, 3), seed=0, targets_per_speaker=0)
