"""Kaldi ark/scp: what is written is what Kaldi's readers see, what is malformed is named with its line."""

from __future__ import annotations

import pickle
from pathlib import Path

import kaldiio
import numpy as np
import pytest

from svtoolkit.errors import UserError
from svtoolkit.scoring import embedding_file
from svtoolkit.scoring.embedding_file import embedding_parts, read_embeddings, write_embeddings

MATRIX = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
NAMES = ["b-1", "a-2", "c-3"]


def test_what_is_written_is_read_back_bit_for_bit_and_in_order(tmp_path: Path) -> None:
    scp = write_embeddings(tmp_path / "deep" / "eval", NAMES, MATRIX)
    assert scp == tmp_path / "deep" / "eval.scp"
    table = read_embeddings(scp)
    assert list(table.utterances) == NAMES
    np.testing.assert_array_equal(table.matrix, MATRIX)


def test_kaldi_readers_see_the_same(tmp_path: Path) -> None:
    scp = write_embeddings(tmp_path / "eval", NAMES, MATRIX)
    by_scp = kaldiio.load_scp(str(scp))
    by_ark = dict(kaldiio.load_ark(str(tmp_path / "eval.ark")))
    for name, vector in zip(NAMES, MATRIX, strict=True):
        np.testing.assert_array_equal(by_scp[name], vector)
        np.testing.assert_array_equal(by_ark[name], vector)


def test_the_scp_works_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scp = write_embeddings("eval", NAMES, MATRIX)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read_embeddings(scp).matrix, MATRIX)


def test_writing_again_replaces_and_leaves_nothing_aside(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "eval", NAMES, MATRIX)
    write_embeddings(tmp_path / "eval", NAMES[:1], MATRIX[:1] + 1)
    np.testing.assert_array_equal(read_embeddings(tmp_path / "eval.scp").matrix, MATRIX[:1] + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eval.ark", "eval.scp"]


def test_a_failed_write_leaves_no_scp_that_points_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_embeddings(tmp_path / "eval", NAMES, MATRIX)

    def full_disk(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kaldiio, "save_mat", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_embeddings(tmp_path / "eval", NAMES, MATRIX + 1)
    assert [path.name for path in tmp_path.iterdir()] == ["eval.ark"]


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "a", "b"], "'a' is listed twice"), (["a b", "c", "d"], "'a b' is empty or holds a space")],
)
def test_ids_that_an_scp_cannot_hold_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_embeddings(tmp_path / "eval", names, MATRIX)


def test_malformed_lists_are_named_with_their_line(tmp_path: Path) -> None:
    scp = write_embeddings(tmp_path / "eval", NAMES, MATRIX)
    lines = scp.read_text().splitlines()
    cases = {
        "alone": ([lines[0], "alone"], "list:2"),
        "beyond": ([lines[0], f"x {tmp_path / 'eval.ark'}:100000"], "list:2"),
        "no ark": ([lines[0], f"x {tmp_path / 'gone.ark'}:5"], "list:2"),
        "a pipe": ([lines[0], "x touch executed |"], "list:2"),
        "nothing": ([], "list: "),
    }
    for case, (content, where) in cases.items():
        (tmp_path / "list").write_text("".join(f"{line}\n" for line in content))
        with pytest.raises(UserError) as caught:
            read_embeddings(tmp_path / "list")
        assert where in str(caught.value), case
    assert not Path("executed").exists()
    with pytest.raises(UserError, match="there is no such file"):
        read_embeddings(tmp_path / "missing.scp")


def test_vectors_of_different_sizes_are_refused(tmp_path: Path) -> None:
    first = write_embeddings(tmp_path / "first", ["a"], MATRIX[:1])
    second = write_embeddings(tmp_path / "second", ["b"], MATRIX[:1, :3])
    (tmp_path / "both.scp").write_text(first.read_text() + second.read_text())
    with pytest.raises(UserError, match=r"both\.scp:2"):
        read_embeddings(tmp_path / "both.scp")


def test_an_ark_of_another_writer_is_read_whatever_its_precision(tmp_path: Path) -> None:
    vectors = dict(zip(NAMES, MATRIX.astype(np.float64) + 1e-12, strict=True))
    kaldiio.save_ark(str(tmp_path / "double.ark"), vectors, scp=str(tmp_path / "double.scp"))
    table = read_embeddings(tmp_path / "double.scp")
    assert table.matrix.dtype == np.float64
    np.testing.assert_array_equal(table.matrix, np.stack(list(vectors.values())))
    (tmp_path / "text.ark").write_bytes(b"a  [ 1.5 2.5 ]\n")  # as copy-vector writes ark,t
    (tmp_path / "text.scp").write_text(f"a {tmp_path / 'text.ark'}:2\n")
    np.testing.assert_array_equal(read_embeddings(tmp_path / "text.scp").matrix, [[1.5, 2.5]])


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("executed"),)


def test_nothing_that_an_ark_holds_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eval.ark").write_bytes(b"a PKL" + pickle.dumps(Hostile()))
    for location in (f"{tmp_path / 'eval.ark'}:2", "touch executed |:5", "| touch executed:0", "-:0"):
        (tmp_path / "eval.scp").write_text(f"a {location}\n")
        with pytest.raises(UserError, match=r"eval\.scp:1: .* cannot be read"):
            read_embeddings(tmp_path / "eval.scp")
    assert not (tmp_path / "executed").exists()


def test_a_torn_ark_is_named_with_its_line(tmp_path: Path) -> None:
    scp = write_embeddings(tmp_path / "eval", NAMES, MATRIX)
    ark = tmp_path / "eval.ark"
    whole = ark.read_bytes()
    for lost in range(1, 30):
        ark.write_bytes(whole[:-lost])
        with pytest.raises(UserError, match=r"eval\.scp:3: "):
            read_embeddings(scp)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda matrix: matrix * [[1], [np.nan], [1]], r"eval\.scp: the embedding of 'a-2' holds NaN or infinity"),
        (lambda matrix: matrix * [[1], [1], [0]], r"eval\.scp: the embedding of 'c-3' is zero in every dimension"),
    ],
)
def test_embeddings_without_a_cosine_are_named_with_their_file(tmp_path: Path, change, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_embeddings(write_embeddings(tmp_path / "eval", NAMES, change(MATRIX)))


def test_an_embedding_that_is_listed_twice_and_a_matrix_are_named_with_their_file(tmp_path: Path) -> None:
    scp = write_embeddings(tmp_path / "eval", NAMES, MATRIX)
    scp.write_text(scp.read_text() + scp.read_text().splitlines()[1] + "\n")
    with pytest.raises(UserError, match=r"eval\.scp: the embedding of 'a-2' is listed twice"):
        read_embeddings(scp)
    kaldiio.save_ark(str(tmp_path / "frames.ark"), {"a": MATRIX}, scp=str(tmp_path / "frames.scp"))
    with pytest.raises(UserError, match=r"frames\.scp:1: 'a' has shape \(3, 5\), expected a vector like the others"):
        read_embeddings(tmp_path / "frames.scp")
    (tmp_path / "bytes.scp").write_bytes(b"a \xff\xfe\n")
    with pytest.raises(UserError, match=r"bytes\.scp:1: found .*, expected `utterance file\.ark:offset`"):
        read_embeddings(tmp_path / "bytes.scp")


def test_several_arks_in_any_order_are_read_as_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for part in range(3):
        names = [f"{'x' * (1 + row % 3)}-{part}-{row}" for row in range(20)]
        scp = write_embeddings(tmp_path / f"part{part}", names, rng.standard_normal((20, 5)).astype(np.float32))
        lines += scp.read_text().splitlines(keepends=True)
    (tmp_path / "all.scp").write_text("".join(lines[row] for row in rng.permutation(60)))
    at_once = read_embeddings(tmp_path / "all.scp")
    monkeypatch.setattr(embedding_file, "read_columns", lambda content, count: None)
    by_line = read_embeddings(tmp_path / "all.scp")
    assert at_once.utterances == by_line.utterances
    np.testing.assert_array_equal(at_once.matrix, by_line.matrix)


def test_parts_of_another_size_are_refused_where_they_begin(tmp_path: Path) -> None:
    first = write_embeddings(tmp_path / "first", ["a", "b"], np.ones((2, 4), np.float32))
    second = write_embeddings(tmp_path / "second", ["c"], np.ones((1, 3), np.float32))
    (tmp_path / "both.scp").write_text(first.read_text() + second.read_text())
    with pytest.raises(UserError, match=r"both\.scp:3: 'c' has shape \(3,\), expected a vector like the others"):
        list(embedding_parts(tmp_path / "both.scp", 2))
