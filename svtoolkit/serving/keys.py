"""Who may ask: API keys, and the addresses on which none is needed."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Iterable

from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import MalformedError, read_text

VARIABLE = "SVT_KEYS"
"""Of the environment: keys with blanks between them."""

SHORTEST = 16
"""Characters of a key."""


class Keys:
    """The keys that are accepted; of none, everybody is. What is kept are their digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, key: str | None) -> bool:
        """Whether a key is one of them, in a time that tells nothing of how much of it is right."""
        if not self._digests:
            return True
        given = _digest(key or "")
        return sum(hmac.compare_digest(given, digest) for digest in self._digests) > 0  # all of them are compared


def read_keys(path: str | None) -> Keys:
    """The keys of a file, or of the environment.

    Raises:
        UserError: the file cannot be read or has none; a key that is too short or is not ASCII.
    """
    if path is None:
        return Keys(_checked(VARIABLE, os.environ.get(VARIABLE, "").split()))
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
    except MalformedError as error:
        raise UserError(f"{path}: is no file of keys ({error}); expected one a line") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UserError(f"{path}: holds no key; expected one a line, for example of `openssl rand -hex 24`")
    return Keys(_checked(path, keys))


def _checked(where: str, keys: list[str]) -> list[str]:
    for number, key in enumerate(keys, start=1):
        if len(key) < SHORTEST or not key.isascii() or len(key.split()) > 1:
            raise UserError(
                f"{where}: key {number} is too short, holds blanks or is not ASCII; expected {SHORTEST} characters or "
                "more, for example of `openssl rand -hex 24`"
            )
    return keys


def require_keys(host: str, keys: Keys) -> None:
    """Refuse to listen where others can reach it without a key.

    Raises:
        UserError: the address is not this machine's own, and there are no keys.
    """
    if not keys and not is_loopback(host):
        raise UserError(
            f"host is {host}, which other machines reach, and there are no API keys; add keys=FILE, set {VARIABLE}, or "
            "listen on host=127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether an address is that of the machine itself; any other name than localhost may be of another."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
