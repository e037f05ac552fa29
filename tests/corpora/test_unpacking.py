"""Archives unpacked without joining their parts, resumed, and refused before anything is written."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from archive_material import tree, write_archives

from svtoolkit.corpora import unpacking
from svtoolkit.corpora.archive_sources import find_sources
from svtoolkit.corpora.rehearsal import choose_speakers
from svtoolkit.corpora.unpacking import Unpacking
from svtoolkit.corpora.voxceleb import prepare_voxceleb2
from svtoolkit.errors import UserError

CORPORA = ["vox1", "vox2", "musan", "rirs"]
SPEAKERS = [f"id0{number:04d}" for number in (12, 15, 18, 22, 26, 53)]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> Path:
    """As unpacked, of noise."""
    folder = tmp_path_factory.mktemp("corpora")
    rng = np.random.default_rng(0)
    names = [f"vox2/dev/aac/{speaker}/video{number}/0000{number}.wav" for speaker in SPEAKERS for number in range(3)]
    names += ["vox2/dev/aac/id00017/video/00001.wav"]
    names += [f"vox1/{part}/wav/id1{number:04d}/v/1.wav" for part, number in (("dev", 1), ("dev", 2), ("test", 270))]
    names += [f"musan/noise/free-sound/noise-{number}.wav" for number in range(70)]
    names += [f"RIRS_NOISES/simulated_rirs/smallroom/Room001/{number}.wav" for number in range(3)]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, rng.normal(0, 0.1, 2000), 16000)
    return folder


@pytest.fixture(scope="module")
def archives(corpora, tmp_path_factory) -> Path:
    return write_archives(corpora, tmp_path_factory.mktemp("downloads") / "archives")


def unpack(archives: Path, out: Path, limit: int | None = None, corpora: list[str] = CORPORA, jobs: int = 2) -> int:
    """Bytes that were written."""
    written: list[int] = []
    with Unpacking(out, limit) as unpacking_:
        unpacking_.unpack(unpacking_.begin(find_sources(archives, corpora)), jobs=jobs, progress=written.append)
    return sum(written)


def expected(corpora: Path) -> dict[str, bytes]:
    found = {}
    for name, content in tree(corpora).items():
        top, _, rest = name.partition("/")
        found[{"vox1": rest.partition("/")[2], "vox2": rest}.get(top, name)] = (top, content)
    names = {"RIRS_NOISES": "rirs"}
    return {f"{names.get(top, top)}/{rest}": content for rest, (top, content) in found.items()}


@pytest.mark.parametrize("jobs", [1, 3])
def test_everything_is_there_and_read_by_the_corpora(archives, corpora, tmp_path, jobs, monkeypatch):
    monkeypatch.setattr(unpacking, "BATCH", 4)
    written = unpack(archives, tmp_path / "out", jobs=jobs)
    assert tree(tmp_path / "out") == expected(corpora)
    assert written == sum(map(len, expected(corpora).values()))
    assert sorted(set(prepare_voxceleb2(tmp_path / "out" / "vox2", part="dev").utt2spk.values())) == SPEAKERS


def test_what_is_there_is_not_written_again(archives, corpora, tmp_path):
    unpack(archives, tmp_path)
    assert unpack(archives, tmp_path) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.wav")}
    (tmp_path / "unpacked.json").unlink()
    unpack(archives, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (tmp_path / "vox2" / "dev" / "aac" / "id00012" / "video1" / "00001.wav").write_bytes(b"half")
    (tmp_path / "musan" / "musan" / "noise" / "free-sound" / "noise-5.wav").unlink()
    (tmp_path / "unpacked.json").unlink()
    unpack(archives, tmp_path)
    assert tree(tmp_path) == expected(corpora)
    changed = {path for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert {path.name for path in changed} == {"00001.wav", "noise-5.wav"}


def test_an_archive_that_was_changed_is_looked_at_again(archives, corpora, tmp_path):
    copy = tmp_path / "archives"
    shutil.copytree(archives, copy)
    unpack(copy, tmp_path / "out")
    (tmp_path / "out" / "rirs" / "RIRS_NOISES" / "simulated_rirs" / "smallroom" / "Room001" / "1.wav").unlink()
    assert unpack(copy, tmp_path / "out") == 0, "its end is recorded"
    os.utime(copy / "rirs_noises.zip", (1, 1))
    assert unpack(copy, tmp_path / "out") == 4044
    assert tree(tmp_path / "out") == expected(corpora)


def test_killed_it_goes_on(archives, corpora, tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "BATCH", 2)
    child = os.fork()
    if child == 0:
        try:
            with Unpacking(tmp_path) as unpacking_:
                left = unpacking_.begin(find_sources(archives, ["vox2"]))
                unpacking_.unpack(left, jobs=1, progress=lambda written: os._exit(9))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.wav")}
    assert 0 < len(before) < 19
    (tmp_path / "vox2" / "dev" / ".00001.wav.0123456789abcdef.tmp").write_bytes(b"half a file")
    unpack(archives, tmp_path)
    assert tree(tmp_path) == expected(corpora)
    assert before.items() <= {path: path.stat().st_mtime_ns for path in before}.items()
    assert not list(tmp_path.rglob("*.tmp"))


def test_of_voxceleb2_some_speakers_then_all(archives, corpora, tmp_path):
    unpack(archives, tmp_path, limit=3)
    found = {path.name for path in (tmp_path / "vox2" / "dev" / "aac").iterdir()}
    assert found == set(choose_speakers(SPEAKERS, 3))
    assert set(prepare_voxceleb2(tmp_path / "vox2", part="dev", limit_speakers=3).utt2spk.values()) == found
    assert unpack(archives, tmp_path, limit=3) == 0
    assert unpack(archives, tmp_path) > 0
    assert tree(tmp_path) == expected(corpora)
    assert unpack(archives, tmp_path, limit=3) == 0, "they are all there"


def test_a_disk_that_is_too_small_is_known_before(archives, tmp_path, monkeypatch):
    free = 100_000
    monkeypatch.setattr(unpacking.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 0, free))
    with pytest.raises(
        UserError, match=r"unpacking writes about 0\.\d GB, and the disk has 0\.0 GB free; free 0\.\d GB"
    ):
        unpack(archives, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.wav"))


def test_what_is_missing_is_named(archives, tmp_path):
    copy = tmp_path / "archives"
    shutil.copytree(archives, copy)
    (copy / "vox2_dev_aac_partac").unlink()
    (copy / "musan.tar.gz").unlink()
    message = r"archives: lacks vox2_dev_aac_partac of vox2 \(or vox2_dev_aac\.zip\); musan\.tar\.gz of musan; download"
    with pytest.raises(UserError, match=message):
        find_sources(copy, CORPORA)
    assert len(find_sources(copy, ["vox1", "rirs"])) == 3
    with pytest.raises(UserError, match=r"corpora lists 'vox3', expected of vox1, vox2, musan, rirs"):
        find_sources(copy, ["vox3"])
    parts = sorted(copy.glob("vox1_dev_wav_part*"))
    (copy / "vox1_dev_wav.zip").write_bytes(b"".join(part.read_bytes() for part in parts))
    assert [path.name for path in find_sources(copy, ["vox1"])[0].files] == ["vox1_dev_wav.zip"]


@pytest.mark.parametrize(("name", "corpus"), [("vox1_test_wav.zip", "vox1"), ("musan.tar.gz", "musan")])
def test_a_broken_archive_is_a_sentence(archives, corpora, tmp_path, name, corpus):
    copy = tmp_path / "archives"
    shutil.copytree(archives, copy)
    content = bytearray((copy / name).read_bytes())
    content[2000:2400] = b"\0" * 400
    (copy / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}: cannot be unpacked \(.*\); compare it with its published checksum"):
        unpack(copy, tmp_path / "out", corpora=[corpus])
    shutil.copy(archives / name, copy)
    unpack(copy, tmp_path / "out", corpora=[corpus])
    assert tree(tmp_path / "out").items() <= expected(corpora).items()


@pytest.mark.parametrize("name", ["../outside.wav", "/outside.wav"])
def test_nothing_is_written_outside(archives, tmp_path, name):
    copy = tmp_path / "archives"
    shutil.copytree(archives, copy)
    with zipfile.ZipFile(copy / "rirs_noises.zip", "w") as archive:
        archive.writestr(name, b"x")
    with tarfile.open(copy / "musan.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    for corpus in ("rirs", "musan"):
        with pytest.raises(UserError, match=r"outside\.wav' lies outside the archive"):
            unpack(copy, tmp_path / "out" / "deep", corpora=[corpus])
    assert not list(tmp_path.rglob("outside.wav"))


def test_two_do_not_unpack_at_a_time(archives, tmp_path):
    with Unpacking(tmp_path), pytest.raises(UserError, match="another process unpacks there; wait for its end"):
        unpack(archives, tmp_path)
