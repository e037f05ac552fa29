from __future__ import annotations

import hashlib

import pytest

from svtoolkit.cli import main
from svtoolkit.commands import archives as command
from svtoolkit.corpora import archives
from svtoolkit.corpora.archives import Archive

GOOD = b"an archive of speech" * 1000
PAGE = "https://example.org/corpus/"


@pytest.fixture(autouse=True)
def table(monkeypatch) -> None:
    md5 = hashlib.md5(GOOD).hexdigest()
    listed = tuple(Archive(name, md5, PAGE) for name in ("first.zip", "missing.zip", "second.tar.gz"))
    monkeypatch.setattr(archives, "ARCHIVES", listed)
    monkeypatch.setattr(command, "ARCHIVES", listed)


def test_whole_archives(tmp_path, capsys):
    (tmp_path / "first.zip").write_bytes(GOOD)
    (tmp_path / "second.tar.gz").write_bytes(GOOD)
    (tmp_path / "notes.txt").write_bytes(b"of no concern")
    assert main(["archives", str(tmp_path), "jobs=2"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [f"{tmp_path}/first.zip: whole", f"{tmp_path}/second.tar.gz: whole"]
    assert "archives: 100%" in captured.err
    assert "40.0k/40.0k" in captured.err


def test_a_damaged_archive_among_them(tmp_path, capsys):
    (tmp_path / "first.zip").write_bytes(GOOD[:-1] + b"!")
    (tmp_path / "second.tar.gz").write_bytes(GOOD)
    assert main(["archives", "--folder", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [f"{tmp_path}/second.tar.gz: whole"]
    problem, error = captured.err.splitlines()[-2:]
    assert problem.startswith(f"{tmp_path}/first.zip: has md5 ")
    assert problem.endswith(f"; download it again from {PAGE}")
    assert error == "error: 1 of 2 archives are not as they were published"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["{tmp_path}"],
            "{tmp_path}: holds none of the archives that are known (first.zip, missing.zip, second.tar.gz)",
        ),
        (["{tmp_path}/nowhere"], "{tmp_path}/nowhere: there is no such folder"),
        (["{tmp_path}", "jobs=0"], "jobs is 0, expected 1 or more"),
        ([], "svt archives: required and not given: folder"),
    ],
)
def test_mistakes(words, message, tmp_path, capsys):
    assert main(["archives", *(word.format(tmp_path=tmp_path) for word in words)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message.format(tmp_path=tmp_path)}")
