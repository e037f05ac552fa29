"""Models of several utterances: what is missing is named or left out, and the map is read with care."""

from __future__ import annotations

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.enrolment import enrol_models, read_enrolments

TABLE = EmbeddingTable(["a1", "a2", "b1", "t"], np.array([[1.0, 0], [0, 1], [1, 1], [3, 4]]))
TRIALS = Trials(["a", "b", "a"], ["t", "t", "gone"], np.array([True, False, False]))
MODELS = {"a": ["a1", "a2", "a3"], "b": ["b1"], "unused": ["nowhere"]}


@pytest.mark.parametrize(("mean", "of_a"), [("embeddings", 7 / 5 / np.sqrt(2)), ("scores", 0.7)])
def test_what_has_no_embedding_is_left_out(mean, of_a):
    enrolled = enrol_models(TABLE, TRIALS, MODELS, mean=mean, allow_missing=True)
    assert list(zip(enrolled.listed.enrol, enrolled.listed.test, strict=True)) == [("a", "t"), ("b", "t")]
    scores = enrolled.join(cosine_scores(enrolled.table, enrolled.trials))
    np.testing.assert_allclose(scores, [of_a, 7 / 5 / np.sqrt(2)])


@pytest.mark.parametrize(
    ("trials", "models", "message"),
    [
        (TRIALS, MODELS, "2 of 6 utterances of models and trials have no embedding: a3, gone; extract them"),
        (TRIALS, {"a": ["a1"]}, "1 models of the trials are not in the enrolment map: b;"),
    ],
)
def test_what_is_missing_is_named(trials, models, message):
    with pytest.raises(UserError, match=message):
        enrol_models(TABLE, trials, models, mean="scores", allow_missing=False)


def test_nothing_left_is_said():
    nothing = Trials(["a"], ["gone"], np.array([True]))
    with pytest.raises(UserError, match="none of the 1 trials has embeddings of its model"):
        enrol_models(TABLE, nothing, MODELS, mean="scores", allow_missing=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a u1\n\na u2\n", r"models:3: lists the model 'a' again; expected `model utterance \.\.\.`"),
        (b"a u1\nb\n", "models:2: lists no utterance for 'b'"),
        (b"\n", "the enrolment map is empty"),
        (b"a u1\n\xff\n", "models:2: is no UTF-8 text"),
    ],
)
def test_broken_maps_are_refused(tmp_path, text, message):
    (tmp_path / "models").write_bytes(text)
    with pytest.raises(UserError, match=message):
        read_enrolments(tmp_path / "models")


def test_a_map_is_read_with_utterances_once(tmp_path):
    (tmp_path / "models").write_text("a u2 u1 u2\nb u3\n")
    assert read_enrolments(tmp_path / "models") == {"a": ["u2", "u1"], "b": ["u3"]}
