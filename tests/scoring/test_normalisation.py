"""Score normalisation against a loop over trials, against numbers done by hand, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring import normalisation
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.normalisation import METHODS, check_disjoint, cohort_statistics, normalise_scores


def table_of(prefix, count, dimension=6, seed=0, dtype=np.float64):
    matrix = np.random.default_rng(seed).normal(0.5, 1.0, size=(count, dimension)).astype(dtype)
    return EmbeddingTable([f"{prefix}{row}" for row in range(count)], matrix)


def trials_of(table, count=40, seed=5):
    rng = np.random.default_rng(seed)
    pick = [[table.utterances[row] for row in rng.integers(len(table), size=count)] for _ in range(2)]
    return Trials(pick[0], pick[1], rng.random(count) < 0.5)


def cosine_by_loop(first, second):
    dot = math.fsum(a * b for a, b in zip(first, second, strict=True))
    return dot / math.sqrt(math.fsum(a * a for a in first) * math.fsum(b * b for b in second))


def normalise_by_loop(scores, trials, table, cohort, top_n, mean):
    normalised = []
    for score, *pair in zip(scores, trials.enrol, trials.test, strict=True):
        parts = []
        for utterance in pair:
            vector = table.matrix[table.index[utterance]].astype(np.float64) - mean
            cosines = [cosine_by_loop(vector, member.astype(np.float64) - mean) for member in cohort.matrix]
            top = sorted(cosines, reverse=True)[:top_n]
            centre = math.fsum(top) / len(top)
            spread = math.sqrt(math.fsum((value - centre) ** 2 for value in top) / len(top))
            parts.append((score - centre) / spread)
        normalised.append(sum(parts) / 2)
    return normalised


@pytest.mark.parametrize(
    ("method", "top_n", "taken"), [("as-norm", 2, 2), ("as-norm", 7, 7), ("as-norm", 25, 25), ("s-norm", None, 25)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_mean", [False, True])
def test_matrix_form_is_the_loop(method, top_n, taken, dtype, with_mean, monkeypatch):
    monkeypatch.setattr(normalisation, "BLOCK_VALUES", 60)  # two utterances a block
    table, cohort = table_of("utt", 9, dtype=dtype), table_of("spk", 25, seed=1, dtype=dtype)
    trials = trials_of(table)
    mean = cohort.matrix.mean(axis=0, dtype=np.float64) if with_mean else None
    scores = cosine_scores(table, trials, mean=mean)
    expected = normalise_by_loop(scores, trials, table, cohort, taken, 0.0 if mean is None else mean)
    normalised = normalise_scores(scores, trials, table, cohort, method=method, top_n=top_n, mean=mean)
    np.testing.assert_allclose(normalised, expected, rtol=1e-5, atol=1e-5)


def test_numbers_done_by_hand():
    # Cosines to the cohort: enrolment 1, 0, -1, 0.6; test 0, 1, 0, 0.8. Raw score 0.
    table = EmbeddingTable(["e", "t"], np.array([[2.0, 0], [0, 5]]))
    cohort = EmbeddingTable(["p", "q", "r", "s"], np.array([[1.0, 0], [0, 3], [-2, 0], [3, 4]]))
    trials = Trials(["e"], ["t"], np.array([True]))
    # Two highest: enrolment 1, 0.6 (mean 0.8, deviation 0.2), test 1, 0.8 (mean 0.9, deviation 0.1).
    top = normalise_scores(np.array([0.0]), trials, table, cohort, top_n=2)
    np.testing.assert_allclose(top, [(-0.8 / 0.2 - 0.9 / 0.1) / 2])
    # All four: enrolment mean 0.15, mean square 0.59; test mean 0.45, mean square 0.41.
    whole = normalise_scores(np.array([0.5]), trials, table, cohort, method="s-norm")
    enrol = (0.5 - 0.15) / math.sqrt(0.59 - 0.15**2)
    test = (0.5 - 0.45) / math.sqrt(0.41 - 0.45**2)
    np.testing.assert_allclose(whole, [(enrol + test) / 2])


def test_top_n_is_300_unless_told():
    table, cohort = table_of("utt", 4), table_of("spk", 350, seed=1)
    trials = trials_of(table)
    scores = cosine_scores(table, trials)
    default = normalise_scores(scores, trials, table, cohort)
    np.testing.assert_array_equal(default, normalise_scores(scores, trials, table, cohort, top_n=300))
    assert not np.allclose(default, normalise_scores(scores, trials, table, cohort, method="s-norm"))


def test_whole_cohort_as_top_n_is_s_norm():
    table, cohort = table_of("utt", 5), table_of("spk", 11, seed=1)
    trials = trials_of(table)
    scores = cosine_scores(table, trials)
    np.testing.assert_allclose(
        normalise_scores(scores, trials, table, cohort, top_n=11),
        normalise_scores(scores, trials, table, cohort, method="s-norm"),
    )


def test_z_norm_is_of_the_enrolment_t_norm_of_the_test_and_s_norm_their_mean():
    table, cohort = table_of("utt", 5), table_of("spk", 11, seed=1)
    trials = trials_of(table)
    scores = cosine_scores(table, trials)
    found = {method: normalise_scores(scores, trials, table, cohort, method=method) for method in METHODS[1:]}
    units = [each.matrix / np.linalg.norm(each.matrix, axis=1, keepdims=True) for each in (table, cohort)]
    cosines = (units[0].astype(np.float64) @ units[1].T)[table.lookup(trials.enrol)]
    np.testing.assert_allclose(found["z-norm"], (scores - cosines.mean(axis=1)) / cosines.std(axis=1), rtol=1e-4)
    np.testing.assert_allclose((found["z-norm"] + found["t-norm"]) / 2, found["s-norm"])
    swapped = Trials(trials.test, trials.enrol, trials.target)
    np.testing.assert_allclose(found["t-norm"], normalise_scores(scores, swapped, table, cohort, method="z-norm"))


def test_a_cohort_that_is_nearly_one_speaker_is_not_rounded_away():
    rng = np.random.default_rng(5)
    table = EmbeddingTable(["a", "b"], rng.normal(size=(2, 8)))
    cohort = EmbeddingTable([str(n) for n in range(30)], rng.normal(size=8) + 1e-5 * rng.normal(size=(30, 8)))
    trials = Trials(["a"], ["b"], np.array([True]))
    scores = cosine_scores(table, trials)
    expected = normalise_by_loop(scores, trials, table, cohort, 30, 0.0)
    np.testing.assert_allclose(normalise_scores(scores, trials, table, cohort, method="s-norm"), expected, rtol=1e-6)


def test_swapping_the_sides_changes_nothing():
    table, cohort = table_of("utt", 5), table_of("spk", 11, seed=1)
    trials = trials_of(table)
    scores = cosine_scores(table, trials)
    swapped = Trials(trials.test, trials.enrol, trials.target)
    np.testing.assert_array_equal(
        normalise_scores(scores, trials, table, cohort, top_n=5),
        normalise_scores(scores, swapped, table, cohort, top_n=5),
    )


def test_statistics_of_chosen_rows():
    table, cohort = table_of("utt", 5), table_of("spk", 11, seed=1)
    every = cohort_statistics(table, np.arange(5), cohort, top_n=4)
    some = cohort_statistics(table, np.array([3, 1]), cohort, top_n=4)
    np.testing.assert_allclose(some.mean, every.mean[[3, 1]], rtol=1e-6)
    np.testing.assert_allclose(some.std, every.std[[3, 1]], rtol=1e-6)


def normalise_ten(scores=None, cohort=None, **options):
    table = table_of("utt", 4)
    trials = trials_of(table, count=10)
    scores = cosine_scores(table, trials) if scores is None else scores
    return normalise_scores(scores, trials, table, table_of("spk", 20, seed=1) if cohort is None else cohort, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "q-norm"}, "no score normalisation 'q-norm'; expected one of as-norm, s-norm, z-norm, t-norm"),
        ({"method": "s-norm", "top_n": 10}, "s-norm uses the whole cohort, so top_n=10"),
        ({}, "top_n is 300, but the cohort has 20 members; expected 2 to 20"),
        ({"top_n": 21}, "top_n is 21, .* expected 2 to 20"),
        ({"top_n": 1}, "top_n is 1, .* expected 2 to 20"),
        ({"scores": np.zeros(9), "top_n": 5}, r"scores of shape \(9,\) for 10 trials"),
        ({"scores": np.full(10, np.nan), "top_n": 5}, "10 of them NaN"),
        ({"cohort": table_of("spk", 20, dimension=5), "top_n": 5}, "cohort's embeddings have 5 dimensions"),
        ({"cohort": table_of("spk", 1), "method": "s-norm"}, "the cohort has 1 member;"),
        (
            {"cohort": table_of("utt", 20), "top_n": 5},
            r"are also in the cohort .*'utt0'.*training speakers",
        ),
        ({"top_n": 5, "mean": np.zeros(2)}, r"mean to subtract has shape \(2,\)"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(UserError, match=message):
        normalise_ten(**arguments)


def test_cohort_of_copies_is_refused_with_the_utterance():
    copies = EmbeddingTable([f"spk{row}" for row in range(30)], np.repeat(table_of("x", 1, seed=3).matrix, 30, axis=0))
    with pytest.raises(UserError, match=r"4 utterances \(the first is 'utt0'\) score the same against all 8 members"):
        normalise_ten(cohort=copies, top_n=8)


def test_utterance_without_embedding_is_refused():
    table, cohort = table_of("utt", 4), table_of("spk", 20, seed=1)
    trials = Trials(["utt0"], ["gone"], np.array([True]))
    with pytest.raises(UserError, match="1 of 2 utterances have no embedding: gone"):
        normalise_scores(np.zeros(1), trials, table, cohort, top_n=5)


def test_shared_speakers_are_refused():
    check_disjoint(["a", "b"], ["c", "d"])
    with pytest.raises(UserError, match=r"4 speakers are in the cohort and in the evaluation: a, b, c, \.\.\.;"):
        check_disjoint(["a", "b", "c", "d", "e"], ["d", "c", "b", "a", "z"])
