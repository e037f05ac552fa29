"""Archives at URLs: fetched once for all processes of a machine, in a folder of bounded size."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from remote_material import MIB, content_of, fetch
from shard_material import decode, noise, read_locations, write_corpus

from svtoolkit.audio.shards import reader, remote_cache
from svtoolkit.audio.shards.location import ShardLocation
from svtoolkit.audio.shards.reader import configure_remote, open_member, read_member
from svtoolkit.audio.shards.remote_cache import RemoteShards
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.errors import UserError
from svtoolkit.system import file_lock
from svtoolkit.system.threads import map_in_order


@pytest.fixture(autouse=True)
def no_cache_stays() -> Iterator[None]:
    yield
    configure_remote(None)


def use(remote: RemoteShards) -> RemoteShards:
    """Read URLs through this cache until the end of the test."""
    configure_remote(remote)
    return remote


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_crops_of_shards_at_a_url(server, tmp_path):
    kaldi_dir = write_corpus(tmp_path)
    write_shards(kaldi_dir, tmp_path / "out", per_shard=5)
    server.files = {f"/data/{path.name}": path.read_bytes() for path in (tmp_path / "out").glob("*.tar")}
    use(RemoteShards(tmp_path / "cache", 10 * MIB))
    for utterance, location in read_locations(tmp_path / "out").items():
        name = Path(location.archive).name
        there = ShardLocation(name, location.offset, location.size).below(server.url("/data"))
        whole = noise(utterance, round(kaldi_dir.utt2dur[utterance] * 16000))
        np.testing.assert_array_equal(decode(there), whole)
        np.testing.assert_array_equal(decode(there, 1000, 500), whole[1000:1500])
    assert sorted(server.asked) == sorted(server.files), "each archive is fetched once"
    assert content_of(tmp_path / "cache") == {path[len("/data/") :]: data for path, data in server.files.items()}


def test_a_long_member_keeps_its_archive_while_it_is_open(server, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "READ_WHOLE", 0)
    monkeypatch.setattr(remote_cache, "SPACE_LIMIT", 0.0)
    server.files = {"/a.tar": b"a" * 1000, "/b.tar": b"b" * 1000}
    use(RemoteShards(tmp_path / "cache", 1500))
    with open_member(ShardLocation(server.url("/a.tar"), 100, 300)) as member:
        with pytest.raises(UserError, match=r"no space for the 1000 bytes of http.*/b.tar: .* in use; raise its bound"):
            read_member(ShardLocation(server.url("/b.tar"), 0, 10))
        assert member.read() == b"a" * 300
    assert read_member(ShardLocation(server.url("/b.tar"), 0, 10)) == b"b" * 10
    assert content_of(tmp_path / "cache") == {"b.tar": b"b" * 1000}


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_other_schemes_are_those_of_fsspec(tmp_path, scheme):
    content = np.random.default_rng(0).bytes(3 * MIB)
    url = f"{scheme}://{tmp_path}/shards/a.tar"
    with fsspec.open(url, "wb", auto_mkdir=True) as stream:
        stream.write(content)
    remote = use(pickle.loads(pickle.dumps(RemoteShards(tmp_path / "cache", 4 * MIB))))
    location = ShardLocation(url, MIB, 5000)
    assert read_member(location) == content[MIB : MIB + 5000]
    assert fetch(remote, url).read_bytes() == content
    with pytest.raises(UserError, match=r"b.tar: there is no archive .*; check the address"):
        fetch(remote, f"{scheme}://{tmp_path}/shards/b.tar")
    with pytest.raises(UserError, match=r"has 3145728 bytes, more than the cache may hold \(1000\)"):
        fetch(RemoteShards(tmp_path / "small", 1000), url)


PROGRAM = """
    import sys
    from svtoolkit.audio.shards.location import ShardLocation
    from svtoolkit.audio.shards.reader import configure_remote, read_member
    from svtoolkit.audio.shards.remote_cache import RemoteShards

    configure_remote(RemoteShards(sys.argv[1], int(sys.argv[2])))
    print("ready", flush=True)
    for url in sys.argv[3:]:
        sys.stdout.write(read_member(ShardLocation(url, 0, 5)).decode())
"""


def start_reader(cache: Path, bound: int, *urls: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(cache), str(bound), *urls]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_at_the_same_time_fetch_once(server, tmp_path):
    server.files = {"/a.tar": b"hello" * 1000}
    server.delay = 1.5  # more than it takes the others to come
    readers = [start_reader(tmp_path / "cache", MIB, server.url("/a.tar")) for _ in range(3)]
    for process in readers:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "ready\nhello"), err
    assert server.asked == ["/a.tar"]


def test_more_archives_than_there_is_space_for(server, tmp_path):
    """Two processes and room for one archive: each gets all of them, and the bound holds at any time."""
    server.files = {f"/{name}.tar": (name * 5).encode() * 200 for name in "abcd"}
    urls = [server.url(path) for path in server.files]
    readers = [start_reader(tmp_path / "cache", 1500, *order) for order in (urls, urls[::-1])]
    while any(process.poll() is None for process in readers):
        assert sum(_sizes(tmp_path / "cache")) <= 1500
        time.sleep(0.01)
    for process, expected in zip(readers, ("aaaaabbbbbcccccddddd", "dddddcccccbbbbbaaaaa"), strict=True):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, f"ready\n{expected}"), err


def _sizes(cache: Path) -> Iterator[int]:
    """Of archives and of what is being fetched, as they come and go."""
    for path in (*cache.glob("*.tar"), *cache.glob("fetching/*.tar")):
        with contextlib.suppress(FileNotFoundError):
            yield path.stat().st_size


def test_what_a_killed_process_left_is_no_obstacle(server, tmp_path):
    server.files = {"/a.tar": b"hello" * 1000, "/b.tar": b"world" * 1000}
    server.answers = ["silent"]
    cache = tmp_path / "cache"
    killed = start_reader(cache, 6000, server.url("/a.tar"))
    # Space is taken for all of it, of which half has come, so that others do not count on it.
    limit = time.monotonic() + 60
    while not server.asked or [path.stat().st_size for path in cache.glob("fetching/*-a.lock")] != [5000]:
        assert killed.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    use(RemoteShards(cache, 6000))
    # Another archive: the orphan of the first is in its way.
    assert read_member(ShardLocation(server.url("/b.tar"), 0, 5)) == b"world"
    assert content_of(cache) == {"b.tar": b"world" * 1000}
    assert read_member(ShardLocation(server.url("/a.tar"), 0, 5)) == b"hello"


def test_the_same_archive_after_a_killed_process(server, tmp_path):
    server.files = {"/a.tar": b"hello" * 1000}
    remote = use(RemoteShards(tmp_path / "cache", 6000))
    partial = tmp_path / "cache" / "fetching" / remote._place(server.url("/a.tar")).name
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x" * 9000)
    partial.with_suffix(".lock").write_bytes(bytes(5500))
    assert fetch(remote, server.url("/a.tar")).read_bytes() == b"hello" * 1000
    assert content_of(tmp_path / "cache") == {"a.tar": b"hello" * 1000}
    assert not list(partial.parent.glob("*.tar"))
    assert partial.with_suffix(".lock").stat().st_size == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_fetches_on(server, tmp_path):
    """fsspec keeps a thread and connections, which a forked process does not have."""
    server.files = {"/a.tar": b"hello" * 1000, "/b.tar": b"world" * 1000}
    remote = use(RemoteShards(tmp_path / "cache", MIB))
    fetch(remote, server.url("/a.tar"))
    child = os.fork()
    if not child:
        same = fetch(remote, server.url("/b.tar")).read_bytes() == server.files["/b.tar"]
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.asked == ["/a.tar", "/b.tar"]


def test_threads_that_need_the_space_of_each_other(server, tmp_path):
    server.files = {f"/{name}.tar": name.encode() * 1000 for name in "abcdef"}
    use(RemoteShards(tmp_path / "cache", 2500))

    def read(path: str) -> bytes:
        return read_member(ShardLocation(server.url(path), 10, 5))

    for _ in range(3):
        assert list(map_in_order(read, server.files, 4)) == [content[10:15] for content in server.files.values()]


def test_what_was_used_longest_ago_goes_first(server, tmp_path):
    server.files = {f"/{name}.tar": name.encode() * 1000 for name in "abcd"}
    remote = use(RemoteShards(tmp_path / "cache", 3500))
    paths = {name: fetch(remote, server.url(f"/{name}.tar")) for name in "abc"}
    for name, seconds in (("a", 300), ("b", 200), ("c", 100)):
        age(paths[name], seconds)
    read_member(ShardLocation(server.url("/a.tar"), 0, 1))
    assert time.time() - paths["a"].stat().st_mtime < 50, "use is noted"
    fetch(remote, server.url("/d.tar"))
    assert sorted(content_of(tmp_path / "cache")) == ["a.tar", "c.tar", "d.tar"]
    assert len(server.asked) == 4


def test_what_is_in_use_stays(server, tmp_path):
    server.files = {f"/{name}.tar": name.encode() * 1000 for name in "abc"}
    remote = use(RemoteShards(tmp_path / "cache", 2500))
    descriptor = remote.open(server.url("/a.tar"))
    age(fetch(remote, server.url("/a.tar")), 500)
    age(fetch(remote, server.url("/b.tar")), 100)
    fetch(remote, server.url("/c.tar"))
    assert sorted(content_of(tmp_path / "cache")) == ["a.tar", "c.tar"]
    assert os.pread(descriptor, 5, 0) == b"aaaaa"
    remote.unlock(descriptor)
    os.close(descriptor)
    age(fetch(remote, server.url("/c.tar")), -10)
    fetch(remote, server.url("/b.tar"))
    assert sorted(content_of(tmp_path / "cache")) == ["b.tar", "c.tar"]


def test_an_archive_thrown_out_between_finding_and_locking_it(server, tmp_path, monkeypatch):
    server.files = {"/a.tar": b"hello"}
    remote = use(RemoteShards(tmp_path / "cache", 100))
    path = fetch(remote, server.url("/a.tar"))
    plain, calls = file_lock.fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if not calls:
            path.unlink()
        calls.append(operation)
        plain(descriptor, operation)

    monkeypatch.setattr(file_lock.fcntl, "flock", flock)
    assert read_member(ShardLocation(server.url("/a.tar"), 0, 5)) == b"hello"
    assert server.asked == ["/a.tar", "/a.tar"]


def test_names_in_the_cache_are_plain(server, tmp_path):
    server.files = {"/a%20b/%C3%A4.tar?x=1&y=/../../z.tar": b"hello"}
    (path,) = server.files
    place = fetch(RemoteShards(tmp_path / "cache", MIB), server.url(path))
    assert place.parent == tmp_path / "cache"
    assert place.read_bytes() == b"hello"
    long = RemoteShards(tmp_path / "cache", MIB)._place("s3://bucket/" + "ä" * 500 + ".tar")
    assert len(os.fsencode(long.name)) < 100
    assert long.suffix == ".tar"


def test_a_system_without_locks_that_readers_share_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(file_lock, "fcntl", None)
    with pytest.raises(UserError, match="whose readers share locks, and this system has none, expected Linux or macOS"):
        RemoteShards(tmp_path, 1)
