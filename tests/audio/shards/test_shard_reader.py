"""Reading out of archives: open descriptors shared by threads and forks, archives that are damaged or replaced."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
from shard_material import RATE, decode, noise, read_locations, write_corpus

from svtoolkit.audio.pcm16 import encode_pcm16
from svtoolkit.audio.shards import reader
from svtoolkit.audio.shards.location import ShardLocation
from svtoolkit.audio.shards.reader import configure_remote, open_member, read_member
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.errors import UserError


@pytest.fixture(autouse=True)
def archives(monkeypatch: pytest.MonkeyPatch) -> reader._OpenArchives:
    """Two descriptors, so that they are exchanged all the time."""
    few = reader._OpenArchives(2)
    monkeypatch.setattr(reader, "_local", few)
    return few


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """12 utterances in 6 shards."""
    write_shards(write_corpus(tmp_path), tmp_path / "out", per_shard=2)
    return tmp_path / "out"


def descriptors_below(folder: Path) -> int:
    """Open descriptors of this process on files of a folder."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # that of the listing itself
            continue
    return sum(target.startswith(str(folder)) for target in targets)


def test_descriptors_are_kept_and_bounded(shards):
    locations = read_locations(shards)
    for _ in range(2):
        for utterance, location in locations.items():
            samples = decode(location)
            np.testing.assert_array_equal(samples, noise(utterance, len(samples)))
            assert descriptors_below(shards) <= 2
    assert descriptors_below(shards) == 2


def test_threads(shards):
    locations = read_locations(shards)
    contents = {utterance: read_member(location) for utterance, location in locations.items()}
    wrong: list[object] = []

    def read(seed: int) -> None:
        try:
            for utterance in np.random.default_rng(seed).choice(sorted(locations), 150):
                if read_member(locations[utterance]) != contents[utterance]:
                    wrong.append(utterance)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_processes_read_on(shards, archives):
    """Forked while another thread holds the lock, as it may happen: the child must not wait for a thread it lacks."""
    locations = read_locations(shards)
    contents = {utterance: read_member(location) for utterance, location in locations.items()}
    os.register_at_fork(after_in_child=archives.renew_lock)
    archives._lock.acquire()
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            same = all(read_member(locations[utterance]) == contents[utterance] for utterance in locations)
            os._exit(0 if same else 1)
        children.append(child)
    archives._lock.release()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert all(read_member(locations[utterance]) == contents[utterance] for utterance in locations)


def test_the_module_renews_its_lock_in_a_child(monkeypatch):
    monkeypatch.undo()  # the module's own archives
    reader._local._lock.acquire()
    try:
        child = os.fork()
        if not child:
            os._exit(0 if reader._local._lock.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        reader._local._lock.release()


def test_an_archive_that_is_replaced_is_opened_anew(shards, tmp_path):
    location = ShardLocation(str(tmp_path / "a.tar"), 2, 3)
    (tmp_path / "a.tar").write_bytes(b"0123456789")
    assert read_member(location) == b"234"
    (tmp_path / "b.tar").write_bytes(b"abcdefghij")
    os.replace(tmp_path / "b.tar", tmp_path / "a.tar")
    assert read_member(location) == b"cde"
    (tmp_path / "a.tar").unlink()
    with pytest.raises(UserError, match="there is no such shard"):
        read_member(location)


def test_a_missing_archive(tmp_path):
    location = ShardLocation(str(tmp_path / "a.tar"), 512, 100)
    for read in (read_member, open_member):
        with pytest.raises(UserError) as error:
            read(location)
        assert str(error.value) == (
            f"{tmp_path}/a.tar: there is no such shard, though shards.scp lists audio at byte 512 of it; copy the data "
            "directory with all its shards, or write them again with `svt shard`"
        )


@pytest.mark.parametrize(("there", "found"), [(0, 0), (300, 0), (512, 0), (600, 88), (611, 99)])
@pytest.mark.parametrize("whole", [True, False])
def test_an_archive_that_ends_too_early(tmp_path, monkeypatch, there, found, whole):
    monkeypatch.setattr(reader, "READ_WHOLE", 1 << 20 if whole else 10)
    (tmp_path / "a.tar").write_bytes(bytes(there))
    for read in (read_member, open_member):
        with pytest.raises(UserError) as error:
            read(ShardLocation(str(tmp_path / "a.tar"), 512, 100))
        assert str(error.value).startswith(
            f"{tmp_path}/a.tar: shards.scp lists 100 bytes of audio at byte 512, but {found} are there: the "
        )
        assert "`sha256sum -c shards.sha256`" in str(error.value)


def test_an_archive_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reader.os, "fstat", lambda _: os.stat_result([0, 0, 0, 1, 0, 0, 1 << 20, 0, 0, 0]))
    (tmp_path / "a.tar").write_bytes(bytes(550))
    with pytest.raises(UserError, match="lists 100 bytes of audio at byte 512, but 38 are there"):
        read_member(ShardLocation(str(tmp_path / "a.tar"), 512, 100))


def test_reads_that_come_in_pieces(tmp_path, monkeypatch):
    content = np.random.default_rng(0).bytes(5000)
    (tmp_path / "a.tar").write_bytes(content)
    plain = os.pread
    monkeypatch.setattr(
        reader.os, "pread", lambda descriptor, count, offset: plain(descriptor, min(count, 700), offset)
    )
    assert read_member(ShardLocation(str(tmp_path / "a.tar"), 512, 4000)) == content[512:4512]


def test_a_broken_disk(tmp_path, monkeypatch):
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "a.tar").write_bytes(bytes(700))
    monkeypatch.setattr(reader.os, "pread", fail)
    with pytest.raises(
        UserError, match=r"a.tar: 100 bytes at 512 cannot be read \(Input/output error\); check the disk"
    ):
        read_member(ShardLocation(str(tmp_path / "a.tar"), 512, 100))


def test_a_folder_in_place_of_an_archive(tmp_path):
    (tmp_path / "a.tar").mkdir()
    with pytest.raises(UserError, match=r"a.tar: "):
        read_member(ShardLocation(str(tmp_path / "a.tar"), 0, 1))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"a.tar: the shard cannot be opened \(Not a directory\)"):
        read_member(ShardLocation(str(tmp_path / "file" / "a.tar"), 0, 1))


def test_a_long_member_is_read_as_far_as_it_is_needed(tmp_path, monkeypatch):
    samples = (np.random.default_rng(0).uniform(-1, 1, 60 * RATE)).astype(np.float32)
    content = encode_pcm16(samples, RATE, "flac")
    assert len(content) > reader.READ_WHOLE
    (tmp_path / "a.tar").write_bytes(bytes(512) + content + b"what follows")
    location = ShardLocation(str(tmp_path / "a.tar"), 512, len(content))
    whole, _ = soundfile.read(io.BytesIO(content), dtype="int16")
    counts: list[int] = []
    plain = os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        counts.append(size)
        return plain(descriptor, size, offset)

    monkeypatch.setattr(reader.os, "pread", count)
    np.testing.assert_array_equal(decode(location, 40 * RATE, 2 * RATE), whole[40 * RATE : 42 * RATE])
    assert 0 < sum(counts) < len(content)
    np.testing.assert_array_equal(decode(location), whole)


def test_a_member_behaves_as_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "READ_WHOLE", 0)
    content = np.random.default_rng(0).bytes(3000)
    (tmp_path / "a.tar").write_bytes(bytes(100) + content + b"what follows")
    own = io.BytesIO(content)
    rng = np.random.default_rng(1)
    with open_member(ShardLocation(str(tmp_path / "a.tar"), 100, 3000)) as member:
        assert (member.readable(), member.seekable(), member.writable()) == (True, True, False)
        for whence, limits in ((os.SEEK_SET, (0, 4000)), (os.SEEK_CUR, (0, 50)), (os.SEEK_END, (-3000, 100))) * 10:
            place, count = int(rng.integers(*limits)), int(rng.integers(0, 4000))
            assert member.seek(place, whence) == own.seek(place, whence)
            assert member.read(count) == own.read(count)
            assert member.tell() == own.tell()
        with pytest.raises(OSError, match="Invalid argument"):
            member.raw.seek(-1)
    assert member.closed


def test_an_unread_member_of_no_bytes(tmp_path):
    (tmp_path / "a.tar").write_bytes(bytes(512))
    assert read_member(ShardLocation(str(tmp_path / "a.tar"), 512, 0)) == b""


def test_a_url_without_a_cache():
    assert configure_remote(None) is None
    with pytest.raises(
        UserError,
        match=r"^https://host/a.tar: shards at a URL are read through a cache on disk, and none is set up; `svt train` "
        r"has data\.cache_dir for it, other commands need the shards on disk: copy them here",
    ):
        read_member(ShardLocation("https://host/a.tar", 0, 1))
