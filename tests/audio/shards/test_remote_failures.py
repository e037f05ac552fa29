"""Archives at URLs that cannot be fetched, now or ever: what is tried again, and what the user is told."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from remote_material import MIB, content_of, fetch

from svtoolkit.audio.shards import remote_cache, remote_source
from svtoolkit.audio.shards.remote_cache import RemoteShards
from svtoolkit.audio.shards.remote_source import fetch_archive
from svtoolkit.errors import UserError
from svtoolkit.system import file_lock


@pytest.mark.parametrize(
    ("answers", "failures"),
    [
        ([503, 500], 2),
        (["cut", "reset", "reset"], 2),  # aiohttp itself asks again, once, where a connection is closed without answer
        ([429, "cut", 504, 502], 4),
        (["longer", "other"], 2),
    ],
    ids=str,
)
def test_what_fails_is_tried_again(server, tmp_path, delays, caplog, answers, failures):
    server.files = {"/a.tar": b"hello" * 1000}
    server.answers = list(answers)
    remote = RemoteShards(tmp_path / "cache", MIB)
    assert fetch(remote, server.url("/a.tar")).read_bytes() == b"hello" * 1000
    assert delays == [1.0, 2.0, 4.0, 8.0][:failures]
    assert len(caplog.messages) == failures
    assert caplog.messages[0].startswith(f"{server.url('/a.tar')}: ")
    assert caplog.messages[0].endswith("; another attempt in 1 s")
    assert content_of(tmp_path / "cache") == {"a.tar": b"hello" * 1000}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (503, r"503, .*Service Unavailable.*"),
        ("cut", r".*Not enough data to satisfy content length.*"),
        ("reset", r".*disconnected.*"),
        ("longer", r"15000 bytes came, 5000 were announced"),
        ("other", r"4999 bytes came, 5000 were announced"),
    ],
)
def test_what_fails_again_and_again_is_given_up(server, tmp_path, delays, answer, reason):
    server.files = {"/a.tar": b"hello" * 1000}
    server.answers = [answer] * 20
    remote = RemoteShards(tmp_path / "cache", MIB)
    with pytest.raises(UserError, match=rf"/a.tar: could not be fetched in 5 attempts \({reason}\); check the network"):
        fetch(remote, server.url("/a.tar"))
    assert len(server.asked) == (10 if answer == "reset" else 5)
    assert delays == [1.0, 2.0, 4.0, 8.0]
    assert content_of(tmp_path / "cache") == {}


@pytest.fixture
def lookups(monkeypatch) -> list[int]:
    """What the resolver says, one after the other, before it finds the host; 0: it does."""
    answers: list[int] = []
    resolve = socket.getaddrinfo

    def look_up(host: str, port: int, *rest: Any, **options: Any) -> Any:
        if host == "shards.example":
            if code := answers.pop(0) if answers else 0:
                raise socket.gaierror(code, "nobody knows it")
            host = "127.0.0.1"
        return resolve(host, port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers


def test_a_host_that_there_is_not_is_given_up_at_once(server, tmp_path, delays, lookups):
    url = server.url("/a.tar").replace("127.0.0.1", "shards.example")
    lookups += [socket.EAI_NONAME] * 20
    with pytest.raises(UserError, match=r"/a\.tar: the name of its host is unknown \(.*nobody knows it.*; correct the"):
        fetch(RemoteShards(tmp_path / "cache", MIB), url)
    assert delays == []


@pytest.mark.parametrize("failures", [1, 2, 20])
def test_a_name_that_cannot_be_looked_up_for_a_moment_is_tried_again_briefly(
    server, tmp_path, delays, lookups, failures
):
    server.files = {"/a.tar": b"hello"}
    url = server.url("/a.tar").replace("127.0.0.1", "shards.example")
    lookups += [socket.EAI_AGAIN] * 2 * failures  # for its size alone, then for its size with its content
    remote = RemoteShards(tmp_path / "cache", MIB)
    if failures < 3:
        assert fetch(remote, url).read_bytes() == b"hello"
    else:
        with pytest.raises(UserError, match=r"/a\.tar: could not be fetched in 3 attempts \(.*nobody knows it"):
            fetch(remote, url)
    assert delays == [1.0, 2.0][:failures]


def test_a_server_that_falls_silent(server, tmp_path, delays, monkeypatch, caplog):
    monkeypatch.setattr(remote_source, "SILENCE", 0.2)
    server.files = {"/a.tar": b"hello" * 1000}
    server.answers = ["silent"]
    remote = RemoteShards(tmp_path / "cache", MIB)
    assert fetch(remote, server.url("/a.tar")).read_bytes() == b"hello" * 1000
    assert (delays, len(server.asked)) == ([1.0], 2)
    assert "Timeout on reading data" in caplog.text


@pytest.mark.parametrize("has_head", [True, False], ids=["asked for the content", "asked for the size"])
@pytest.mark.parametrize("answer", ["drip", "slow head"])
def test_a_server_that_drips(server, tmp_path, delays, monkeypatch, caplog, answer, has_head):
    """Bytes keep coming, so that it is never silent, and never done."""
    for name in ("SILENCE", "STRETCH"):
        monkeypatch.setattr(remote_source, name, 0.3)
    server.files = {"/a.tar": b"hello" * 1000, "/b.tar": b"hello" * 1000}
    server.answers = [answer]
    server.has_head = has_head
    remote = RemoteShards(tmp_path / "cache", MIB)
    assert fetch(remote, server.url("/a.tar")).read_bytes() == b"hello" * 1000
    assert delays in ([1.0], [])  # a size that is asked for with the content may come before its bytes
    server.answers = [answer] * 20
    with pytest.raises(UserError, match=r"in 5 attempts \((\d+ bytes came in 0 s|no whole answer)"):
        fetch(remote, server.url("/b.tar"))


def test_credentials_are_not_shown(server, tmp_path, delays, caplog):
    url = server.url("/a.tar").replace("http://", "http://someone:secret@")
    remote = RemoteShards(tmp_path / "cache", MIB)
    messages = []
    for answers in ([404], [503] * 20, [503]):
        server.files = {} if answers == [404] else {"/a.tar": b"hello"}
        server.answers = list(answers)
        try:
            fetch(remote, url)
        except UserError as error:
            messages.append(str(error))
    assert [message.partition(": ")[0] for message in messages] == [url.replace("someone:secret", "***")] * 2
    assert "secret" not in caplog.text + "".join(messages)
    assert "http://***@127.0.0.1" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "http:///a.tar", "http://[::1/a.tar", "http://host:99999999/a.tar", "http://host:port/a.tar",
        "http://\u0130..x/a.tar", "https://user:secret@[/a.tar", "://a.tar", "s4://x/a.tar", "http://.../a.tar",
    ],
)  # fmt: skip
def test_an_address_that_is_none(tmp_path, delays, url):
    with pytest.raises(UserError) as error:
        fetch(RemoteShards(tmp_path / "cache", MIB), url)
    assert str(error.value).startswith(f"{url.replace('user:secret', '***')}: ")
    assert "secret" not in str(error.value)
    assert delays == []


def test_no_server(tmp_path, delays, server):
    url = server.url("/a.tar")
    server.server_close()
    with pytest.raises(UserError, match=r"could not be fetched in 5 attempts \(Cannot connect to host .*\)"):
        fetch(RemoteShards(tmp_path / "cache", MIB), url)


@pytest.mark.parametrize("status", [404, 403, 410])
def test_what_will_not_change_is_an_error_at_once(server, tmp_path, delays, status):
    server.answers = [status]
    with pytest.raises(UserError, match=r"/a.tar: there is no archive that may be read .*; check the address") as error:
        fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar"))
    assert str(status) in str(error.value)
    assert delays == []
    assert server.asked == ["/a.tar"]


def test_a_server_that_tells_sizes_with_the_content_only(server, tmp_path):
    server.files = {"/a.tar": b"hello" * 1000}
    server.has_head = False
    assert fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar")).read_bytes() == b"hello" * 1000


def test_a_server_that_does_not_say_how_much_comes(server, tmp_path):
    server.files = {"/a.tar": b"hello"}
    server.answers = ["vague"]
    with pytest.raises(UserError, match=r"/a.tar: the server does not say how large the archive is"):
        fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar"))


def test_an_archive_larger_than_the_cache(server, tmp_path):
    server.files = {"/a.tar": b"hello" * 1000, "/b.tar": b"hello"}
    remote = RemoteShards(tmp_path / "cache", 4999)
    fetch(remote, server.url("/b.tar"))
    with pytest.raises(UserError) as error:
        fetch(remote, server.url("/a.tar"))
    assert str(error.value) == (
        f"{server.url('/a.tar')}: has 5000 bytes, more than the cache may hold (4999); raise the bound, or write "
        "smaller shards"
    )
    assert content_of(tmp_path / "cache") == {"b.tar": b"hello"}
    with pytest.raises(UserError, match="the cache of remote shards may hold 0 bytes, expected 1 or more"):
        RemoteShards(tmp_path / "cache", 0)


def test_checksums(server, tmp_path, delays):
    server.files = {"/a.tar": b"hello"}
    url = server.url("/a.tar")
    right, wrong = hashlib.sha256(b"hello").hexdigest(), hashlib.sha256(b"hallo").hexdigest()
    assert fetch(RemoteShards(tmp_path / "cache", MIB, {url: right.upper()}), url).read_bytes() == b"hello"
    with pytest.raises(UserError, match=rf"/a.tar: arrived with the SHA-256 {right}, expected {wrong}: it is damaged"):
        fetch(RemoteShards(tmp_path / "cache", MIB, {url: wrong}), url)
    assert delays == []
    server.files = {"/a.tar": b"hallo"}
    newer = RemoteShards(tmp_path / "cache", MIB, {url: wrong})
    assert fetch(newer, url).read_bytes() == b"hallo", "content with another checksum is another archive"
    assert sorted(path.read_bytes() for path in (tmp_path / "cache").glob("*.tar")) == [b"hallo", b"hello"]


def test_a_full_disk(server, tmp_path, monkeypatch, delays):
    server.files = {"/a.tar": b"hello"}

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(remote_cache, "fetch_archive", fail)
    with pytest.raises(UserError, match=r"a.tar: No space left on device; free some disk, or lower the bound"):
        fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar"))
    assert delays == []
    monkeypatch.undo()
    assert content_of(tmp_path / "cache") == {}
    assert fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar")).read_bytes() == b"hello"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
def test_a_disk_that_fills_while_an_archive_comes(server, tmp_path):
    server.files = {"/a.tar": b"hello" * 100000}
    with pytest.raises(OSError, match="No space left") as error:
        fetch_archive(server.url("/a.tar"), Path("/dev/full"), lambda size: None)
    assert error.value.errno == errno.ENOSPC


def test_a_cache_that_cannot_be_written_names_its_file(server, tmp_path):
    server.files = {"/a.tar": b"hello"}
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar"))


def test_a_cache_without_locks(server, tmp_path, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    with pytest.raises(UserError, match=r"cache: the file system has no locks; choose a cache on a local disk"):
        fetch(RemoteShards(tmp_path / "cache", MIB), server.url("/a.tar"))


def test_an_address_of_no_known_kind(tmp_path):
    remote = RemoteShards(tmp_path / "cache", 1000)
    with pytest.raises(
        UserError, match=r"^nowhere://host/a.tar: is no address that can be read \(.*nowhere.*correct it"
    ):
        fetch(remote, "nowhere://host/a.tar")


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/a.tar", "s3fs"), ("https://host/a.tar", "aiohttp")])
def test_a_scheme_whose_package_is_missing(tmp_path, monkeypatch, url, package):
    monkeypatch.setitem(sys.modules, package, None)
    remote = RemoteShards(tmp_path / "cache", 1000)
    with pytest.raises(UserError, match=rf"^{url}: .*{package}.* install the package .*aiohttp"):
        fetch(remote, url)
