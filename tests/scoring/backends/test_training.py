"""LDA and WCCN against scikit-learn and their definitions; what back ends refuse; what is on disk."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf as sklearn_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from svtoolkit.errors import UserError
from svtoolkit.scoring.backends import training_data
from svtoolkit.scoring.backends.backend_file import read_backend, write_backend
from svtoolkit.scoring.backends.covariance import ledoit_wolf
from svtoolkit.scoring.backends.training import train_backend
from svtoolkit.scoring.backends.training_data import LabelledEmbeddings
from svtoolkit.scoring.cosine import EmbeddingTable


def unit(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def prepared(table: EmbeddingTable) -> np.ndarray:
    """Centred, of length one."""
    return unit(table.matrix - table.matrix.mean(axis=0))


def labels(table, utt2spk) -> np.ndarray:
    return np.array([utt2spk[name] for name in table.utterances])


def test_lda_is_that_of_scikit_learn(drawn):
    table, utt2spk = drawn(offset=1.0)
    found = train_backend("lda", table, utt2spk, {"dim": 3, "shrinkage": 0.0}).apply(table).matrix
    rows = prepared(table)
    oracle = LinearDiscriminantAnalysis(solver="svd", n_components=3)
    expected = unit(oracle.fit(rows, labels(table, utt2spk)).transform(rows))
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9)


def test_wccn_is_the_cosine_under_the_inverse_of_the_covariance_within_speakers(drawn):
    table, utt2spk = drawn()
    found = train_backend("wccn", table, utt2spk, {"shrinkage": 0.0}).apply(table).matrix
    rows, names = prepared(table), labels(table, utt2spk)
    left = np.concatenate([rows[names == each] - rows[names == each].mean(axis=0) for each in sorted(set(names))])
    inverse = np.linalg.inv(left.T @ left)
    centred = rows - rows.mean(axis=0)
    products = centred @ inverse @ centred.T
    lengths = np.sqrt(np.diag(products))
    np.testing.assert_allclose(found @ found.T, products / np.outer(lengths, lengths), atol=1e-9)


@pytest.mark.parametrize("count", [8, 200])
def test_shrinkage_is_that_of_scikit_learn(count):
    rows = np.random.default_rng(0).normal(size=(count, 20)) * np.linspace(0.2, 2, 20)
    _, expected = sklearn_shrinkage(rows, assume_centered=True)
    fourth = float((np.square(rows).sum(axis=1) ** 2).sum())
    assert ledoit_wolf(rows.T @ rows / count, fourth, count) == pytest.approx(expected, rel=1e-10)


def test_shrinkage_grows_where_there_are_fewer_recordings(drawn):
    within = np.diag(np.linspace(0.1, 3, 8))
    few, many = (
        LabelledEmbeddings.of(*drawn(count, 8, within=within)).statistics().within(None)[1] for count in (4, 400)
    )
    assert few > 5 * many > 0


def test_blocks_do_not_matter(drawn, monkeypatch):
    labelled = LabelledEmbeddings.of(*drawn())
    whole = labelled.statistics()
    monkeypatch.setattr(training_data, "BLOCK_VALUES", 35)
    parts = labelled.statistics()
    for name in ("counts", "means", "scatter", "fourth"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12, atol=1e-12)


def test_whitened_embeddings_have_the_identity_as_covariance(drawn):
    table, utt2spk = drawn()
    first = train_backend("lda", table, utt2spk, {"whiten": True, "shrinkage": 0.0}).stages[0]
    rows = (table.matrix - first.offset) @ first.matrix.T
    np.testing.assert_allclose(rows.T @ rows / (len(rows) - 1), np.eye(5), atol=1e-9)


def test_lengths_are_one_until_the_ratio(drawn):
    table, utt2spk = drawn()
    backend = train_backend("plda", table, utt2spk)
    rows = table.matrix
    for stage in backend.stages[:2]:
        rows = stage.apply(rows, table.utterances)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    assert not backend.stages[2].unit
    assert (np.diff(backend.between) <= 0).all()
    assert backend.between.shape == (2,)  # half of 5


@pytest.mark.parametrize("kind", ["lda", "wccn", "plda"])
def test_a_file_holds_all_and_the_same_bytes_each_time(drawn, tmp_path, kind):
    table, utt2spk = drawn()
    for name in ("one", "two"):
        write_backend(tmp_path / name, train_backend(kind, table, utt2spk))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    backend, read = train_backend(kind, table, utt2spk), read_backend(tmp_path / "one")
    np.testing.assert_array_equal(read.apply(table).matrix, backend.apply(table).matrix)
    assert (read.kind, dict(read.facts)) == (kind, dict(backend.facts))
    assert (read.between is None) == (kind != "plda")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("pldda", {}, "there is no back end 'pldda'; did you mean 'plda'?"),
        ("wccn", {"dim": 2}, "back end wccn has no option 'dim'; "),
        ("lda", {"dim": 6}, "dim is 6, expected 2 to 5: the embeddings have 5 dimensions, and 40 speakers"),
        ("plda", {"dim": 1}, "dim is 1, expected 2 to 5"),
        ("plda", {"iterations": 0}, "iterations is 0, expected 1 or more"),
        ("lda", {"shrinkage": 1.0}, "shrinkage is 1, expected 0 or more and less than 1, or null"),
    ],
)
def test_settings_that_cannot_be(drawn, kind, settings, message):
    with pytest.raises(UserError) as caught:
        train_backend(kind, *drawn(), settings)
    assert str(caught.value).startswith(message)


def test_too_few_speakers_or_recordings(drawn):
    table, utt2spk = drawn(speakers=4)
    one = {name: speaker for name, speaker in utt2spk.items() if speaker == "s000"}
    single = {name: speaker for name, speaker in utt2spk.items() if name.endswith("-0")}
    for some, count, most in ((one, 1, len(one)), (single, 4, 1)):
        with pytest.raises(UserError, match=f"found {count} speakers; the most utterances of a speaker are {most}"):
            train_backend("lda", table, some)
    with pytest.raises(UserError, match="expected 2 to 3: the embeddings have 5 dimensions, and 4 speakers diffe"):
        train_backend("lda", table, utt2spk, {"dim": 4})
    two = {name: speaker for name, speaker in utt2spk.items() if speaker < "s002"}
    with pytest.raises(UserError, match="found 2 speakers and embeddings of 5 dimensions; LDA needs 3 speakers"):
        train_backend("plda", table, two)
    with pytest.raises(UserError, match="1 of 2 utterances have no embedding: other"):
        train_backend("lda", table, {"other": "s1", "s000-0": "s0"})


@pytest.mark.parametrize("shrinkage", [0.0, None])
def test_embeddings_that_do_not_differ(drawn, shrinkage):
    table, utt2spk = drawn(speakers=3, dimension=4)
    same = EmbeddingTable(table.utterances, np.array([[1.0, int(name[3]), 0, 0] for name in table.utterances]))
    with pytest.raises(UserError, match="has no inverse; give more utterances whose embeddings differ"):
        train_backend("wccn", same, utt2spk, {"shrinkage": shrinkage})


def test_what_a_trained_back_end_refuses(drawn):
    table, utt2spk = drawn()
    backend = train_backend("lda", table, utt2spk)
    with pytest.raises(UserError, match="the embeddings have 3 dimensions, those that the back end was trained on 5"):
        backend.apply(EmbeddingTable(["a"], np.ones((1, 3))))
    with pytest.raises(UserError, match="the embedding of 'a' is that of the mean"):
        backend.apply(EmbeddingTable(["a"], backend.stages[0].offset[None]))


def test_files_that_are_no_back_ends(drawn, tmp_path):
    with pytest.raises(UserError, match="nowhere: there is no such file; expected a back end"):
        read_backend(tmp_path / "nowhere")
    write_backend(tmp_path / "good", train_backend("plda", *drawn()))
    content = (tmp_path / "good").read_bytes()
    (tmp_path / "text").write_text("no back end")
    (tmp_path / "cut").write_bytes(content[:-9])
    for name in ("text", "cut"):
        with pytest.raises(UserError, match=f"{name}: is no back end .*; expected what `svt backend` writes"):
            read_backend(tmp_path / name)
    (tmp_path / "nan").write_bytes(content[:-8] + np.array([np.nan]).tobytes())
    with pytest.raises(UserError, match="nan: the matrices of the back end are damaged"):
        read_backend(tmp_path / "nan")
