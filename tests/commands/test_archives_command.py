from __future__ import annotations

import hashlib
import io
import zipfile

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


@pytest.mark.usefixtures("told_at_once")
def test_whole_archives(tmp_path, capsys):
    (tmp_path / "first.zip").write_bytes(GOOD)
    (tmp_path / "second.tar.gz").write_bytes(GOOD)
    (tmp_path / "notes.txt").write_bytes(b"of no concern")
    assert main(["archives", str(tmp_path), "jobs=2"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [f"{tmp_path}/first.zip: whole", f"{tmp_path}/second.tar.gz: whole"]
    assert "archives: 40.0k/40.0k B (100 %)" in captured.err


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


def test_archives_are_unpacked_once_they_are_whole(tmp_path, monkeypatch, capsys):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("RIRS_NOISES/a.wav", b"sound")
    path = tmp_path / "downloads" / "rirs_noises.zip"
    path.parent.mkdir()
    path.write_bytes(content.getvalue())
    words = ["archives", str(path.parent), "unpack=" + str(tmp_path / "out"), "corpora=[rirs]"]

    def listed(md5):
        table = (Archive("rirs_noises.zip", md5, PAGE),)
        monkeypatch.setattr(archives, "ARCHIVES", table)
        monkeypatch.setattr(command, "ARCHIVES", table)

    listed("0" * 32)
    assert main(words) == 1
    assert "error: 1 of 1 archives are not as they were published" in capsys.readouterr().err
    assert not (tmp_path / "out" / "rirs").exists()
    listed(hashlib.md5(content.getvalue()).hexdigest())
    assert main(words) == 0
    captured = capsys.readouterr().out
    assert f"{path}: whole" in captured
    assert f"{tmp_path}/out: rirs unpacked" in captured
    assert (tmp_path / "out" / "rirs" / "RIRS_NOISES" / "a.wav").read_bytes() == b"sound"
    assert main(words) == 0
    assert "whole" not in capsys.readouterr().out, "it was read again"
    listed("0" * 32)
    words[2] += "2"
    assert main([*words, "check=false"]) == 0
    assert (tmp_path / "out2" / "rirs" / "RIRS_NOISES" / "a.wav").is_file()
    assert main(words) == 1, "what was unpacked unchecked does not pass for whole"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check=false"], "check and limit_speakers are for unpack=FOLDER; give it, or leave them out"),
        (["limit_speakers=3"], "check and limit_speakers are for unpack=FOLDER"),
        (["unpack=x", "corpora=[]"], "corpora is empty, expected what to unpack, such as corpora=[vox1,vox2]"),
        (["unpack=x", "corpora=[musan]"], "{tmp_path}: lacks musan.tar.gz of musan; download them"),
    ],
)
def test_mistakes_of_unpacking(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["archives", str(tmp_path), *words]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message.format(tmp_path=tmp_path)}")
    assert not list(tmp_path.iterdir())
