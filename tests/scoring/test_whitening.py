"""Whitening within speakers: what it promises of the covariance, and what has none."""

from __future__ import annotations

import numpy as np
import pytest

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.pair import cosine
from svtoolkit.scoring.whitening import Whitening

UTT2SPK = {f"u{number}": f"s{number % 10}" for number in range(100)}


def some(dimension: int = 4, seed: int = 0) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    speakers = np.repeat(rng.normal(size=(1, 10, dimension)), 10, axis=0).reshape(100, dimension)
    turn = rng.normal(size=(dimension, dimension))
    return EmbeddingTable(list(UTT2SPK), (speakers + 0.3 * rng.normal(size=(100, dimension))) @ turn + 5)


def test_within_speakers_the_covariance_is_the_identity_and_the_mean_is_0():
    white = Whitening(some(), UTT2SPK).apply(some()).matrix
    speakers = np.arange(100) % 10
    within = white - np.stack([white[speakers == speaker].mean(axis=0) for speaker in speakers])
    np.testing.assert_allclose(within.T @ within / 100, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-10)


def test_the_units_of_the_dimensions_do_not_matter():
    table = some()
    other = EmbeddingTable(table.utterances, table.matrix * [1e-3, 1, 50, 7] + [1, -2, 3, 1000])
    one, two = (Whitening(each, UTT2SPK).apply(each).matrix for each in (table, other))
    assert cosine(two[3], two[17]) == pytest.approx(cosine(one[3], one[17]), abs=1e-9)


def test_utterances_without_a_speaker_do_not_count():
    half = {name: speaker for name, speaker in UTT2SPK.items() if int(name[1:]) < 50}
    table = some()
    alone = EmbeddingTable(list(half), table.matrix[:50])
    np.testing.assert_array_equal(Whitening(table, half).root, Whitening(alone, half).root)


def test_refuses_what_has_no_covariance():
    with pytest.raises(UserError, match=r"4 utterances of 4 speakers cannot give a covariance .* of 4 dimensions"):
        Whitening(some(), {name: UTT2SPK[name] for name in ("u0", "u1", "u2", "u3")})
    table = some()
    table.matrix[:, 2] = 1.5
    with pytest.raises(UserError, match="dimension 2 of the embeddings never changes"):
        Whitening(table, UTT2SPK)
    with pytest.raises(UserError, match="1 of 1 utterances have no embedding: x"):
        Whitening(some(), {"x": "s"})
    with pytest.raises(UserError, match="have 3 dimensions, those that whiten them 4"):
        Whitening(some(), UTT2SPK).apply(some(3))
    twice = some()
    twice.matrix[:, 1] = twice.matrix[:, 0]
    with pytest.raises(UserError, match="no inverse"):
        Whitening(twice, UTT2SPK)
