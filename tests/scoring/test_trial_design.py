"""What a trial list gives away: against counts by hand, and on lists made to be fair or not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.trial_design import area_under_roc, check_design

SPEAKERS, UTTERANCES = 12, 6
UTT2SPK = {f"s{s}-{n}": f"s{s}" for s in range(SPEAKERS) for n in range(UTTERANCES)}
PAIRS = [(a, b, UTT2SPK[a] == UTT2SPK[b]) for a, b in itertools.combinations(UTT2SPK, 2)]
SECONDS = {name: 2 + 3 * value for name, value in zip(UTT2SPK, np.random.default_rng(0).random(72), strict=True)}


def design(pairs=PAIRS, *, utt2spk=UTT2SPK, durations=SECONDS, columns=None, **options):
    trials = Trials.of(pairs)
    return check_design(trials, *trial_speakers(trials, utt2spk), durations=durations, columns=columns or {}, **options)


def test_the_area_is_the_share_of_pairs_of_trials():
    rng = np.random.default_rng(1)
    for _ in range(5):
        values, target = rng.integers(6, size=40).astype(float), rng.random(40) < 0.4
        weights = rng.integers(4, size=40)
        won = total = 0.0
        for one, same, times in zip(values, target, weights, strict=True):
            for other, other_same, other_times in zip(values, target, weights, strict=True):
                if same and not other_same:
                    won += times * other_times * ((one > other) + 0.5 * (one == other))
                    total += times * other_times
        assert area_under_roc(values, target, weights) == pytest.approx(won / total, abs=1e-12)


def test_a_fair_list_is_not_warned_of():
    sessions = {name: str(np.random.default_rng([2, row]).integers(3)) for row, name in enumerate(UTT2SPK)}
    found = design(columns={"utt2session": sessions})
    assert found.warnings() == []
    assert [confound.column for confound in found.confounds] == [
        "difference of the durations", "length of both utterances", "utt2session",
    ]  # fmt: skip
    assert (found.utterances, found.on_both_sides) == (72, 70)  # the first is never tested, the last never enrolled


def test_a_session_that_goes_with_the_speaker_is_found_with_its_shares():
    """Of two sessions of each speaker, and two that all share."""
    own = {name: (name if int(name[-1]) < 3 else "all")[: -2 if int(name[-1]) < 3 else None] for name in UTT2SPK}
    (confound,) = design(columns={"utt2session": own}, durations={}).confounds
    assert confound.interval == pytest.approx((confound.auc, confound.auc))  # speakers are all alike
    target = [own[a] == own[b] for a, b, same in PAIRS if same]
    other = [own[a] == own[b] for a, b, same in PAIRS if not same]
    assert (confound.target, confound.nontarget) == (np.mean(target), np.mean(other))
    assert confound.auc == pytest.approx(0.5 + (np.mean(target) - np.mean(other)) / 2)  # of a column of two values
    expected = f"{100 * np.mean(target):.1f} % of the target and {100 * np.mean(other):.1f} % of the non-target trials"
    (warning,) = design(columns={"utt2session": own}, durations={}).warnings()
    assert warning.startswith("utt2session alone tells target from non-target trials (AUC 0.5")
    assert expected in warning


def test_durations_that_go_with_the_speaker_are_found():
    """A speaker's utterances are of nearly one length."""
    seconds = {name: 2 + int(speaker[1:]) + 0.1 * int(name[-1]) for name, speaker in UTT2SPK.items()}
    first, second = design(durations=seconds).confounds
    assert first.auc > 0.95
    assert first.is_found
    assert not second.is_found
    longer = {name: 5.0 if int(name[-1]) < 2 else 2.0 for name in UTT2SPK}
    kept = [pair for pair in PAIRS if not pair[2] or int(pair[0][-1]) < 2]
    (warning,) = [text for text in design(kept, durations=longer).warnings() if text.startswith("the length")]
    assert warning.startswith("the length of both utterances alone tells target from non-target trials (AUC 0.")


def test_trials_without_values_are_left_out_of_what_is_said():
    known = {name: "a" if int(name[-1]) % 2 else "b" for name in UTT2SPK if UTT2SPK[name] != "s0"}
    (confound,) = design(columns={"utt2channel": known, "utt2lang": {}}, durations={}).confounds
    assert confound.trials == sum("s0" not in (UTT2SPK[a], UTT2SPK[b]) for a, b, _ in PAIRS)


def test_trials_that_are_no_test_are_named():
    pairs = [("s1-0", "s1-0", True), ("s1-0", "s1-1", True), ("s1-1", "s1-0", True), ("s1-0", "s2-0", False)]
    first, second = design(pairs, durations={}).warnings()
    assert first == "1 trials compare an utterance with itself (`s1-0 s1-0`): any system accepts them; drop them"
    assert second == "1 trials repeat a pair of the list (`s1-1 s1-0`): they count twice; drop them"


def test_a_test_utterance_of_its_own_model_is_named():
    models = {f"m{s}": [f"s{s}-0", f"s{s}-1"] for s in range(3)}
    utt2spk = {**UTT2SPK, **{f"m{s}": f"s{s}" for s in range(3)}}
    pairs = [("m0", "s0-2", True), ("m0", "s1-0", False), ("m1", "s1-1", True), ("m2", "s2-3", True)]
    (warning,) = design(pairs, utt2spk=utt2spk, durations={}, enrolments=models).warnings()
    assert warning.startswith("1 trials test a model with an utterance that it was enrolled with (`m1 s1-1`)")


def test_a_list_that_keeps_its_sides_apart_but_for_few_is_told():
    sides = [(a, b, same) for a, b, same in PAIRS if int(a[-1]) < 3 <= int(b[-1])]
    assert design(sides, durations={}).warnings() == []
    (warning,) = design([*sides, ("s3-4", "s0-5", False)], durations={}).warnings()
    assert warning.startswith("1 of 72 utterances are enrolment in one trial and test in another, while")


def test_a_fair_list_is_seldom_warned_of():
    """Durations drawn by lot, 20 times."""
    warned = 0
    for seed in range(20):
        drawn = np.random.default_rng(seed).uniform(1, 9, len(UTT2SPK))
        warned += bool(design(durations=dict(zip(UTT2SPK, drawn, strict=True))).warnings())
    assert warned <= 4
