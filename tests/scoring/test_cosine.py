"""Cosine scores against scikit-learn, one pair at a time, and what a table of embeddings refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring import cosine
from svtoolkit.scoring.cosine import (
    EmbeddingTable,
    cosine_scores,
    embedded_part,
    mean_embedding,
    speaker_means,
)


def make_table(count=12, dimension=7, dtype=np.float32, seed=0):
    matrix = np.random.default_rng(seed).normal(1.0, 2.0, size=(count, dimension)).astype(dtype)
    return EmbeddingTable([f"spk{row // 3}-{row % 3}" for row in range(count)], matrix)


def make_trials(table, count=50, seed=1):
    rng = np.random.default_rng(seed)
    enrol = [table.utterances[row] for row in rng.integers(len(table), size=count)]
    test = [table.utterances[row] for row in rng.integers(len(table), size=count)]
    return Trials(enrol, test, np.array([e[:4] == t[:4] for e, t in zip(enrol, test, strict=True)]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_mean", [False, True])
def test_scores_are_those_of_scikit_learn(dtype, with_mean, monkeypatch):
    monkeypatch.setattr(cosine, "BLOCK_VALUES", 20)  # two trials a block, the last block shorter
    table = make_table(dtype=dtype)
    trials = make_trials(table, count=51)
    mean = mean_embedding(table) if with_mean else None
    scores = cosine_scores(table, trials, mean=mean)
    shift = table.matrix.astype(np.float64).mean(axis=0) if with_mean else 0.0
    expected = [
        cosine_similarity(
            [table.matrix[table.index[enrol]].astype(np.float64) - shift],
            [table.matrix[table.index[test]].astype(np.float64) - shift],
        )[0, 0]
        for enrol, test in zip(trials.enrol, trials.test, strict=True)
    ]
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)


def test_score_is_the_cosine_of_the_angle():
    table = EmbeddingTable(["a", "b", "c", "d"], np.array([[3.0, 0], [0.5, 0.5], [0, 9], [-2, 0]]))
    trials = Trials(["a", "a", "a", "a"], ["a", "b", "c", "d"], np.ones(4, dtype=bool))
    np.testing.assert_allclose(cosine_scores(table, trials), [1, 2**-0.5, 0, -1], atol=1e-15)


def test_a_score_does_not_depend_on_its_block(monkeypatch):
    table = make_table(count=30, dimension=33)
    trials = make_trials(table, count=400)
    whole = cosine_scores(table, trials)
    monkeypatch.setattr(cosine, "BLOCK_VALUES", 1)
    np.testing.assert_array_equal(cosine_scores(table, trials), whole)


def test_long_and_short_embeddings_neither_overflow_nor_vanish():
    table = EmbeddingTable(["a", "b"], np.array([[1e30, 1e30], [1e-30, 0]], dtype=np.float32))
    scores = cosine_scores(table, Trials(["a"], ["b"], np.array([False])))
    np.testing.assert_allclose(scores, [2**-0.5], rtol=1e-6)


def test_missing_embeddings_are_an_error_or_left_out():
    table = make_table()
    trials = Trials(
        ["spk0-0", "gone-1", "spk0-1", "gone-2"], ["spk0-1", "spk0-1", "gone-4", "gone-3"], np.array([1, 0, 0, 1], bool)
    )
    with pytest.raises(UserError, match=r"4 of 6 utterances have no embedding: gone-1, gone-2, gone-3, \.\.\."):
        cosine_scores(table, trials)
    found = embedded_part(trials, table)
    assert (found.enrol, found.test) == (["spk0-0"], ["spk0-1"])
    assert found.target.tolist() == [True]


def test_none_scored_is_an_error():
    with pytest.raises(UserError, match="none of the 1 trials has both its embeddings"):
        embedded_part(Trials(["gone-1"], ["spk0-0"], np.array([True])), make_table())


def test_all_scored_means_none_missing():
    table = make_table()
    trials = make_trials(table)
    found = embedded_part(trials, table)
    assert (found.enrol, found.test) == (trials.enrol, trials.test)
    np.testing.assert_array_equal(found.target, trials.target)


def test_speaker_means_are_plain_means():
    table = make_table(count=6)
    utt2spk = {"spk1-0": "b", "spk0-0": "a", "spk0-1": "a", "spk1-2": "b"}
    means = speaker_means(table, utt2spk)
    assert means.utterances == ["a", "b"]
    assert means.matrix.dtype == np.float32
    matrix = table.matrix.astype(np.float64)
    np.testing.assert_allclose(means.matrix, [(matrix[0] + matrix[1]) / 2, (matrix[3] + matrix[5]) / 2], rtol=1e-6)


def test_speaker_means_refuse_missing_utterances():
    with pytest.raises(UserError, match="1 of 2 utterances have no embedding: gone;"):
        speaker_means(make_table(), {"spk0-0": "a", "gone": "a"})
    with pytest.raises(UserError, match="lists no utterance"):
        speaker_means(make_table(), {})


def test_a_speaker_whose_embeddings_cancel_is_named():
    table = EmbeddingTable(["a-1", "a-2"], np.array([[1.0, 0], [-1, 0]]))
    with pytest.raises(UserError, match="embedding of 'a' is zero"):
        speaker_means(table, {"a-1": "a", "a-2": "a"})


@pytest.mark.parametrize(
    ("utterances", "matrix", "message"),
    [
        (["a", "b", "a"], np.ones((3, 2)), "embedding of 'a' is listed twice"),
        (["a", "b"], np.array([[1, 2], [1, np.nan]]), "embedding of 'b' holds NaN"),
        (["a", "b", "c"], np.array([[1, 2], [1, np.inf], [np.inf, 1]]), r"'b' \(and 1 more\) holds NaN"),
        (["a", "b"], np.array([[0.0, 0], [1, 2]]), "embedding of 'a' is zero"),
        (["a", "b"], np.ones((3, 2)), r"shape \(3, 2\) .* for 2 utterances"),
        (["a"], np.ones(1), r"shape \(1,\)"),
        (["a"], np.ones((1, 2), dtype=np.int64), "type int64"),
        ([], np.ones((0, 2)), r"shape \(0, 2\)"),
        (["a"], np.ones((1, 0)), r"shape \(1, 0\)"),
    ],
)
def test_table_refuses(utterances, matrix, message):
    with pytest.raises(UserError, match=message):
        EmbeddingTable(utterances, matrix)


def test_mean_must_fit_and_leave_something():
    table = EmbeddingTable(["a", "b"], np.array([[1.0, 2], [3, 4]]))
    trials = Trials(["a"], ["b"], np.array([False]))
    with pytest.raises(UserError, match=r"has shape \(3,\); expected finite values of shape \(2,\)"):
        cosine_scores(table, trials, mean=np.ones(3))
    with pytest.raises(UserError, match="expected finite values"):
        cosine_scores(table, trials, mean=np.array([1, np.nan]))
    with pytest.raises(UserError, match="'b' equals the mean"):
        cosine_scores(table, trials, mean=np.array([3.0, 4.0]))
