"""A threshold from a few speakers: what it promises is realised on others, and it is that of its formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from svtoolkit.errors import UserError
from svtoolkit.scoring.own_threshold import NormalTail, OwnThreshold, OwnTrials, choose_threshold

DIMENSION = 200


def embeddings(rng: np.random.Generator, speakers: int, recordings: int, kind: str) -> tuple[np.ndarray, list[str]]:
    """Speakers and sessions from normal distributions; with two sexes and a mean that all have in common."""
    scale = np.arange(1, DIMENSION + 1) ** -0.4
    scale /= np.linalg.norm(scale)
    world = np.random.default_rng(99)
    sex, common = (0.4 * direction / np.linalg.norm(direction) for direction in world.standard_normal((2, DIMENSION)))
    voices = rng.standard_normal((speakers, DIMENSION)) * scale
    if kind == "two sexes":
        voices += rng.choice([-1, 1], (speakers, 1)) * sex + common
    sessions = 0.7 * rng.standard_normal((speakers, recordings, DIMENSION)) * scale
    vectors = (voices[:, None] + sessions).reshape(-1, DIMENSION)
    names = [f"s{speaker:03d}" for speaker in range(speakers) for _ in range(recordings)]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), names


@pytest.fixture(scope="module")
def population() -> dict[str, np.ndarray]:
    """Ascending cosines of different speakers, of whom none is drawn below."""
    cosines = {}
    for kind in ("normal", "two sexes"):
        vectors, _ = embeddings(np.random.default_rng(1), 1500, 1, kind)
        cosines[kind] = np.sort((vectors @ vectors.T)[np.triu_indices(1500, 1)])
    return cosines


def realised(population: np.ndarray, threshold: float) -> float:
    return float(1 - np.searchsorted(population, threshold) / len(population))


def drawn(kind: str, speakers: int, fa_rate: float, draws: int) -> list[OwnThreshold]:
    rng = np.random.default_rng([2, speakers])
    return [choose_threshold(*embeddings(rng, speakers, 4, kind), fa_rate, resamples=40) for _ in range(draws)]


@pytest.mark.parametrize("kind", ["normal", "two sexes"])
def test_the_promised_rate_is_realised_on_others_within_a_factor_of_two(population, kind):
    thresholds = drawn(kind, 20, 0.01, 30)
    rates = np.array([realised(population[kind], each.threshold) for each in thresholds]) / 0.01
    assert 0.7 < np.median(rates) < 1.4
    assert np.mean((rates >= 0.5) & (rates <= 2)) >= 0.75
    within = [each.fa_low <= 0.01 * rate <= each.fa_high for each, rate in zip(thresholds, rates, strict=True)]
    assert np.mean(within) >= 0.7


def test_a_rate_below_one_of_the_pairs_of_speakers_is_extrapolated(population):
    rates = [realised(population["two sexes"], each.threshold) for each in drawn("two sexes", 20, 0.001, 25)]
    assert 0.0005 < np.median(rates) < 0.002


def test_more_speakers_tell_more():
    spread = [np.std([each.threshold for each in drawn("two sexes", count, 0.01, 12)]) for count in (6, 40)]
    assert spread[1] < 0.6 * spread[0]
    few, many = (drawn("two sexes", count, 0.01, 1)[0] for count in (6, 40))
    assert many.fa_high / many.fa_low < few.fa_high / few.fa_low


def test_the_tail_of_a_normal_distribution_is_that_distribution():
    z = norm(0.1, 0.2).ppf((np.arange(40000) + 0.5) / 40000)[::-1]
    tail = NormalTail.fit(np.tanh(z), np.ones(len(z)))
    assert (tail.mean, tail.std) == (pytest.approx(0.1, abs=1e-3), pytest.approx(0.2, abs=1e-3))
    for share in (0.1, 0.001):
        assert np.arctanh(tail.threshold(share)) == pytest.approx(norm(0.1, 0.2).isf(share), abs=3e-3)
        assert tail.rate(tail.threshold(share)) == pytest.approx(share)


def test_each_pair_of_speakers_counts_once_however_many_recordings_it_has():
    vectors, names = embeddings(np.random.default_rng(3), 8, 2, "normal")
    often = [*range(16), *([0] * 30)]  # the first recording of s000 thirty times more
    trials = OwnTrials.make(vectors[often], np.array([int(names[row][1:]) for row in often]))
    total = np.zeros((8, 8))
    np.add.at(total, (trials.first, trials.second), trials.weights)
    total = total + total.T
    assert total[np.triu_indices(8, 1)] == pytest.approx(np.ones(28))
    assert list(trials.nontargets) == sorted(trials.nontargets, reverse=True)


def test_what_it_rests_on_is_counted():
    vectors, names = embeddings(np.random.default_rng(4), 7, 3, "normal")
    found = choose_threshold(vectors, names, 0.05)
    cosines = vectors @ vectors.T
    same = np.equal.outer(names, names)
    upper = np.triu(np.ones_like(same), 1)
    assert (found.speakers, found.recordings) == (7, 21)
    assert (found.targets, found.nontargets) == (7 * 3, 21 * 9)
    assert found.p_fa == pytest.approx(np.mean(cosines[~same] >= found.threshold))
    assert found.p_miss == pytest.approx(np.mean(cosines[same & upper] < found.threshold))
    assert found.fa_low < found.fa_high
    assert choose_threshold(vectors, names, 0.05) == found
    assert choose_threshold(vectors, names, 0.01).threshold > found.threshold


def test_copies_of_a_recording_under_two_names_leave_a_threshold():
    vectors, names = embeddings(np.random.default_rng(5), 6, 1, "normal")
    found = choose_threshold(np.concatenate([vectors, vectors[:1]]), [*names, "copy"], 0.01)
    assert -1 <= found.threshold <= 1


@pytest.mark.parametrize(("speakers", "fa_rate", "message"), [
    (4, 0.01, "found recordings of 4 speakers, expected 5 or more; record others"),
    (6, 0.0, "fa_rate is 0; expected a share between 0 and 0.5"),
    (6, 0.5, "fa_rate is 0.5; expected a share between 0 and 0.5"),
])  # fmt: skip
def test_what_is_refused(speakers, fa_rate, message):
    with pytest.raises(UserError, match=message):
        choose_threshold(*embeddings(np.random.default_rng(6), speakers, 2, "normal"), fa_rate)
