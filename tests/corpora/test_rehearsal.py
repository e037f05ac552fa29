"""A few speakers of VoxCeleb: always the same, fewer among more, with both kinds of trials in every list."""

from __future__ import annotations

import random

import pytest

from svtoolkit.corpora.rehearsal import choose_speakers, choose_trial_speakers, restrict_trials
from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError

SPEAKERS = [f"id1{number:04d}" for number in range(40)]


def test_the_same_speakers_whatever_their_order_and_fewer_among_more():
    shuffled = random.Random(0).sample(SPEAKERS, len(SPEAKERS))
    for count in range(2, 40):
        chosen = choose_speakers(shuffled, count)
        assert chosen == choose_speakers(SPEAKERS + SPEAKERS, count) == sorted(chosen)
        assert len(set(chosen)) == count
        assert set(chosen) < set(choose_speakers(SPEAKERS, count + 1))
    assert choose_speakers(SPEAKERS, 5) != SPEAKERS[:5]


@pytest.mark.parametrize("count", [-1, 0, 1, 41])
def test_a_number_that_is_not_there(count):
    with pytest.raises(UserError, match=rf"limit_speakers is {count}, expected 2 to 40, the speakers that are there"):
        choose_speakers(SPEAKERS, count)


def lists_of(pairs: dict[str, list[tuple[int, int]]]) -> tuple[dict[str, Trials], dict[str, str]]:
    """Lists of trials between speakers by number, and the speakers of their utterances."""
    utt2spk = {f"{speaker}-{take}": speaker for speaker in SPEAKERS for take in "ab"}
    lists = {
        name: Trials.of([(f"{SPEAKERS[one]}-a", f"{SPEAKERS[other]}-b", one == other) for one, other in listed])
        for name, listed in pairs.items()
    }
    return lists, utt2spk


def test_each_list_keeps_both_kinds():
    rng = random.Random(1)
    pairs = {
        name: [(one, one) for one in part] + [tuple(rng.sample(part, 2)) for _ in range(30)]
        for name, part in {"O": range(10), "E": range(40), "H": range(20, 40)}.items()
    }
    lists, utt2spk = lists_of(pairs)
    chosen = choose_trial_speakers(lists, utt2spk, 8)
    assert len(set(chosen)) == 8
    assert chosen == choose_trial_speakers(dict(reversed(lists.items())), utt2spk, 8)
    kept = {utterance: speaker for utterance, speaker in utt2spk.items() if speaker in chosen}
    for trials in lists.values():
        left = restrict_trials(trials, kept)
        assert left.target.any()
        assert not left.target.all()
        assert left.utterances <= kept.keys()
        both = [one in kept and other in kept for one, other in zip(trials.enrol, trials.test, strict=True)]
        assert len(left) == sum(both) < len(trials)


def test_too_few_and_too_many_are_told():
    lists, utt2spk = lists_of({"O": [(0, 0), (0, 1)], "H": [(2, 2), (2, 3)]})
    assert choose_trial_speakers(lists, utt2spk, 4) == SPEAKERS[:4]
    for count in (3, 5):
        with pytest.raises(UserError, match=rf"limit_speakers is {count}, expected 4 to 4: with fewer a trial list lo"):
            choose_trial_speakers(lists, utt2spk, count)
    lists, utt2spk = lists_of({"O": [(0, 1)]})
    with pytest.raises(UserError, match=r"^O: has no target trial; leave the list out"):
        choose_trial_speakers(lists, utt2spk, 2)
