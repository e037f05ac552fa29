"""Archives of every form: kaldiio reads what is written, and rows by slice are those that kaldiio gives."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import kaldiio
import numpy as np
import pytest

from svtoolkit.data import feature_archive
from svtoolkit.data.feature_archive import FORMATS, open_features, write_features
from svtoolkit.errors import UserError

BINS = 24


def log_mel(rows: int, seed: int = 0) -> np.ndarray:
    """float32, as wide as log energies are: (rows, BINS)."""
    rng = np.random.default_rng(seed)
    return (8 + 4 * rng.standard_normal((rows, BINS)) + rng.uniform(-3, 3, BINS)).astype(np.float32)


def write(path: Path, form: str, *matrices: np.ndarray) -> dict[str, str]:
    """Utterance -> location."""
    with path.open("wb") as stream:
        return {
            f"u{number}": f"{path}:{write_features(stream, f'u{number}', matrix, form)}"
            for number, matrix in enumerate(matrices)
        }


@pytest.mark.timeout(20)
def test_an_archive_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "feats.ark")
    with pytest.raises(UserError, match=r"feats\.ark: is a pipe, expected a regular file"):
        rows_of(f"{tmp_path}/feats.ark:4")


def rows_of(location: str, first: int = 0, count: int | None = None) -> np.ndarray:
    with open_features(location, BINS) as matrix:
        return matrix.read(first, matrix.rows if count is None else count)


@pytest.mark.parametrize("form", FORMATS)
def test_kaldiio_reads_what_is_written(form, tmp_path):
    written = [log_mel(rows, seed=rows) for rows in (1, 5, 8, 9, 300)]
    locations = write(tmp_path / "a.ark", form, *written)
    (tmp_path / "feats.scp").write_text("".join(f"{name} {location}\n" for name, location in locations.items()))
    listed = kaldiio.load_scp(str(tmp_path / "feats.scp"))
    in_order = dict(kaldiio.load_ark(str(tmp_path / "a.ark")))
    for (name, location), matrix in zip(locations.items(), written, strict=True):
        np.testing.assert_array_equal(listed[name], in_order[name])
        ours = rows_of(location)
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, np.asarray(listed[name], np.float32))
        if form == "float32":
            np.testing.assert_array_equal(ours, matrix)
        elif form == "float16":
            assert listed[name].dtype == np.float16
            np.testing.assert_allclose(ours, matrix, rtol=2**-11)
        else:
            # A quarter of the values has 63 steps or more, and the scale itself 65535.
            step = np.ptp(matrix, axis=0) / 126 + np.ptp(matrix) / 65535
            assert (np.abs(ours - matrix) <= step).all()


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", ["FM", "DM", "CM", "CM2", "CM3", "NPY"])
def test_rows_by_slice_are_those_of_the_whole(kind, by_column, tmp_path, monkeypatch):
    if by_column:
        monkeypatch.setattr(feature_archive, "READ_WHOLE", 0)
    method = {"CM": 2, "CM2": 3, "CM3": 5}.get(kind)
    matrix = log_mel(40).astype(np.float64 if kind == "DM" else np.float16 if kind == "NPY" else np.float32)
    path = str(tmp_path / "a.ark")
    write_function = "numpy" if kind == "NPY" else None
    kaldiio.save_ark(path, {"a": log_mel(3), "b": matrix}, compression_method=method, write_function=write_function)
    assert f"{kind}".encode() in Path(path).read_bytes()
    kaldiio.save_ark(path, {"b": matrix}, f"{path}.scp", compression_method=method, write_function=write_function)
    location = Path(f"{path}.scp").read_text().split()[1]
    whole = np.asarray(kaldiio.load_mat(location), np.float32)
    for first, count in ((0, 40), (0, 1), (7, 20), (39, 1), (40, 0)):
        np.testing.assert_array_equal(rows_of(location, first, count), whole[first : first + count])


@pytest.mark.parametrize("form", FORMATS)
def test_a_crop_of_a_long_utterance_reads_its_own_frames_alone(form, tmp_path, monkeypatch):
    location = write(tmp_path / "a.ark", form, log_mel(100_000))["u0"]
    sizes, pread = [], os.pread

    def counted(descriptor: int, count: int, offset: int) -> bytes:
        sizes.append(count)
        return pread(descriptor, count, offset)

    monkeypatch.setattr(feature_archive.os, "pread", counted)
    rows_of(location, 50_000, 200)
    value = {"float32": 4, "float16": 2, "compressed": 1}[form]
    headers = feature_archive.HEADER_BYTES + 8 * BINS
    assert 200 * BINS * value <= sum(sizes) <= 200 * BINS * value + headers


def test_what_cannot_be_read_is_a_sentence(tmp_path):
    location = write(tmp_path / "a.ark", "float32", log_mel(50))["u0"]
    content = (tmp_path / "a.ark").read_bytes()
    remedy = r"compute the features again with `svt features`, or copy the whole directory again$"
    for bad, message in (
        (f"{tmp_path}/a.ark", r"feats\.scp: found '\S+/a\.ark', expected `archive:offset`; "),
        (f"{tmp_path}/a.ark:3[0:5]", r"feats\.scp: found '\S+/a\.ark:3\[0:5\]', expected `archive:offset`; "),
        (f"{tmp_path}/b.ark:3", r"b\.ark: the archive cannot be opened \(No such file or directory\); "),
        (f"{tmp_path}/a.ark:9", r"a\.ark:9: no features can be read there \(.* is no matrix in Kaldi's binary form"),
        (f"{tmp_path}/a.ark:99999999", r"a\.ark:99999999: no features can be read there \("),
    ):
        with pytest.raises(UserError, match=f"{message}.*{remedy}"):
            rows_of(bad)
    with pytest.raises(UserError, match=r"a\.ark:3: no features can be read there \(24 bins instead of 80\)"):
        open_features(location, 80).__enter__()
    with pytest.raises(UserError, match=r"\(rows 45 to 55 of 50\)"):
        rows_of(location, 45, 10)
    (tmp_path / "a.ark").write_bytes(content[:-100])
    with pytest.raises(UserError, match=r"\(the archive ends 100 bytes too early\)"):
        rows_of(location)


class _Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_nothing_in_an_archive_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.ark").write_bytes(b"a PKL" + pickle.dumps(_Trap()))
    with pytest.raises(UserError, match="is no matrix"):
        rows_of(f"{tmp_path}/a.ark:2")
    array = np.empty((1, 1), dtype=object)
    array[0, 0] = _Trap()
    kaldiio.save_ark("b.ark", {"b": array}, write_function="numpy")
    with pytest.raises(UserError, match="an array of object"):
        rows_of(f"{tmp_path}/b.ark:2")
    assert not (tmp_path / "trapped").exists()
