"""Archives at URLs, fetched by fsspec (https://filesystem-spec.readthedocs.io): http(s) by aiohttp, s3 by s3fs, ..."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.callbacks import Callback
from fsspec.core import url_to_fs
from fsspec.exceptions import FSTimeoutError

from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.system.output_folder import DISK_FULL

SILENCE = 60.0
"""Seconds without a byte after which an HTTP connection is given up."""

SLOWEST, STRETCH = 20_000, 60.0
"""Bytes a second, on average over so many seconds, below which a transfer is given up."""

PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
"""Answers of an HTTP server that may be another one a little later (RFC 9110, RFC 6585)."""


PASSING_LOOKUPS = {getattr(socket, name) for name in ("EAI_AGAIN", "EAI_SYSTEM") if hasattr(socket, name)}
"""What a resolver says of a name that it may find a little later (RFC 3493)."""


class TransferError(Exception):
    """A transfer failed in a way that may not fail again."""


class LookupFailedError(TransferError):
    """The name of the server could not be looked up, which may be so for a moment."""


def fetch_archive(url: str, target: Path, reserve: Callable[[int], object]) -> None:
    """Write an archive to a file, with one request for its size and one for its content.

    Args:
        url: its address.
        target: the file; what a failed transfer leaves of it is the caller's to delete.
        reserve: called with the size of the archive in bytes before the first of them comes.

    Raises:
        TransferError: the network or the server failed, perhaps not for long.
        UserError: there is no such host or archive, it may not be read, or its size is unknown; a scheme nobody knows.
        OSError: the disk is full.
    """
    with _explain(url):
        filesystem, path = url_to_fs(url, **_options(url))
        size = filesystem.size(path, **_limit(filesystem, SILENCE))
    if size is None:
        raise UserError(f"{url}: the server does not say how large the archive is; serve it as a plain file")
    reserve(size)

    pace = _Pace()

    def compare(_: object, count: int, final: bool = False) -> None:
        if not final:
            pace.check(count)
        if count > size or (final and count < size):  # more could fill the disk
            raise TransferError(f"{count} bytes came, {size} were announced")

    with _explain(url):
        limit = _limit(filesystem, SILENCE + STRETCH + size / SLOWEST)
        filesystem.get_file(path, str(target), callback=Callback(hooks={"size": compare}), **limit)
    compare(None, target.stat().st_size, final=True)


class _Pace:
    """Gives up a transfer that drips: it never falls silent, and never ends."""

    def __init__(self) -> None:
        self._begin, self._count = time.monotonic(), 0

    def check(self, count: int) -> None:
        """Raise TransferError where too little has come in the last stretch, of ``count`` bytes in all."""
        seconds = time.monotonic() - self._begin
        if seconds < STRETCH:
            return
        came = count - self._count
        if came < SLOWEST * seconds:
            raise TransferError(f"{came} bytes came in {seconds:.0f} s, expected {SLOWEST} a second or more")
        self._begin, self._count = time.monotonic(), count


def _limit(filesystem: Any, seconds: float) -> dict[str, float]:
    """The time limit of a call of a file system; those that are not asynchronous take none."""
    return {"timeout": seconds} if isinstance(filesystem, AsyncFileSystem) else {}


def _is_http(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def _options(url: str) -> dict[str, Any]:
    """Of fsspec's file system. aiohttp alone would end every transfer after 5 minutes and ask no proxy."""
    if not _is_http(url):
        return {}
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return {"client_kwargs": {"timeout": timeout, "headers": {"Accept-Encoding": "identity"}, "trust_env": True}}


@contextmanager
def _explain(url: str) -> Iterator[None]:
    """What fsspec and its backends raise, as TransferError or UserError."""
    try:
        yield
    except (ImportError, ValueError) as error:
        raise _no_address(url, error) from error
    except Exception as error:
        if isinstance(error, TransferError) or getattr(error, "errno", None) in DISK_FULL:
            raise
        # By HTTP, fsspec calls every failure to ask for the size a file that was not found; a silence has no text.
        hides = isinstance(error, FSTimeoutError) or (isinstance(error, FileNotFoundError) and _is_http(url))
        reason = (hides and error.__cause__) or error
        if isinstance(reason, ValueError):
            raise _no_address(url, reason) from error
        status = getattr(reason, "status", None)
        text = hide_credentials(" ".join(str(reason).split())) or type(reason).__name__
        if (lookup := _lookup_failure(error)) is not None:
            if isinstance(lookup, socket.gaierror) and lookup.errno in PASSING_LOOKUPS:
                raise LookupFailedError(text) from error
            raise UserError(
                f"{url}: the name of its host is unknown ({text}); correct the address, or mend the network and run "
                "the command again"
            ) from error
        if isinstance(reason, TimeoutError | asyncio.TimeoutError) and text == type(reason).__name__:
            text = "no whole answer in time"
        if status not in PASSING_STATUS and (status or isinstance(reason, (FileNotFoundError, PermissionError))):
            raise UserError(
                f"{url}: there is no archive that may be read ({text}); check the address, your rights, and that the "
                "upload is complete"
            ) from error
        raise TransferError(text) from error


def _lookup_failure(error: BaseException) -> OSError | None:
    """What the resolver of names said, if that is what an error comes from."""
    found: BaseException | None = error
    while found is not None:
        said = getattr(found, "os_error", found)
        if isinstance(said, socket.gaierror):
            return said
        found = found.__cause__ or found.__context__
    return None


def _no_address(url: str, error: Exception) -> UserError:
    return UserError(
        f"{url}: is no address that can be read ({error}); correct it, or install the package for such addresses "
        "(http, https: `pip install aiohttp`)"
    )
