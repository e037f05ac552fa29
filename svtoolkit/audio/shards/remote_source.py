"""An archive at a URL as a stream that is read once from beginning to end.

http and https are read with Python's own client, which needs no further package, survives forking and has a limit on
silence instead of one on the whole transfer. Every other scheme (s3, gs, file, memory, ...) is fsspec's
(https://filesystem-spec.readthedocs.io), which torch brings along and which names the package that a scheme needs.
"""

from __future__ import annotations

import http.client
import importlib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from svtoolkit.errors import UserError

SILENCE = 60.0
"""Seconds without a byte after which a connection is given up."""

READ_AHEAD = 1 << 24
"""Bytes that fsspec asks for at a time."""

PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
"""Answers of an HTTP server that may be another one a little later (RFC 9110, RFC 6585)."""


class TransferError(Exception):
    """A transfer failed in a way that may not fail again."""


@dataclass
class RemoteArchive:
    """An open archive.

    Attributes:
        size: bytes that it has.
        read: takes a number of bytes, gives as many or fewer, none at the end; raises TransferError.
    """

    size: int
    read: Callable[[int], bytes]


@contextmanager
def open_remote(url: str) -> Iterator[RemoteArchive]:
    """Open an archive at a URL.

    Raises:
        TransferError: the network or the server failed, perhaps not for long.
        UserError: there is no such archive, it may not be read, or its size is not told; a scheme nobody knows.
    """
    opened = _open_http(url) if url.lower().startswith(("http://", "https://")) else _open_fsspec(url)
    with opened as archive:
        yield archive


@contextmanager
def _open_http(url: str) -> Iterator[RemoteArchive]:
    headers = {"Accept-Encoding": "identity", "User-Agent": "svtoolkit"}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in PASSING_STATUS:
            raise TransferError(f"the server answers {error.code} {error.reason}") from error
        raise UserError(
            f"{url}: the server answers {error.code} {error.reason}; check the address, and whether it may be read"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise TransferError(_say(error)) from error
    with response:
        length = response.headers.get("Content-Length")
        if length is None or not length.isdigit():
            raise UserError(f"{url}: the server does not say how large the archive is; serve it as a plain file")

        def read(count: int) -> bytes:
            try:
                return response.read(count)
            except (OSError, http.client.HTTPException) as error:
                raise TransferError(_say(error)) from error

        yield RemoteArchive(int(length), read)


@contextmanager
def _open_fsspec(url: str) -> Iterator[RemoteArchive]:
    stream, size = _find(url)
    try:
        if size is None:
            raise UserError(f"{url}: its storage does not say how large the archive is; copy the shards here")

        def read(count: int) -> bytes:
            try:
                return stream.read(count)
            except Exception as error:  # every backend has exceptions of its own
                raise TransferError(_say(error)) from error

        yield RemoteArchive(size, read)
    finally:
        stream.close()


def _find(url: str) -> tuple[Any, int | None]:
    """The archive as fsspec opens it, and its size."""
    fsspec = importlib.import_module("fsspec")
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        size = filesystem.info(path)["size"]
        return filesystem.open(path, "rb", block_size=READ_AHEAD, cache_type="readahead"), size
    except ImportError as error:
        raise UserError(f"{url}: a package is missing that reads this kind of address ({error})") from error
    except ValueError as error:
        raise UserError(f"{url}: is no address that can be read ({error})") from error
    except FileNotFoundError as error:
        raise UserError(
            f"{url}: there is no such archive; check the address, and that the upload is complete"
        ) from error
    except PermissionError as error:
        raise UserError(f"{url}: may not be read ({_say(error)}); check your credentials for it") from error
    except Exception as error:  # every backend has exceptions of its own
        raise TransferError(_say(error)) from error


def _say(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
