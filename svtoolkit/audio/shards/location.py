"""Where the bytes of one utterance lie in a shard, as one string: ``<path or URL>.tar:<offset>:<size>``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

LOCATION_FORM = "`<archive>.tar:<offset>:<size>`"

_LOCATION = re.compile(r"(.+\.tar):(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})", re.DOTALL)
# Two letters or more: a single one is a drive of Windows.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


@dataclass(frozen=True)
class ShardLocation:
    """A stretch of an archive.

    Attributes:
        archive: path or URL of the tar file.
        offset: first byte of the audio, counted from 0; its tar header ends there.
        size: bytes of the audio.
    """

    archive: str
    offset: int
    size: int

    @property
    def is_remote(self) -> bool:
        return is_url(self.archive)

    def below(self, base: str | os.PathLike[str]) -> ShardLocation:
        """The same with a relative archive taken from a folder or from a URL; others stay as they are."""
        if self.is_remote or os.path.isabs(self.archive):
            return self
        folder = _mend_scheme(os.fspath(base))
        archive = f"{folder.rstrip('/')}/{self.archive}" if is_url(folder) else str(Path(folder, self.archive))
        return replace(self, archive=archive)


def is_url(text: str) -> bool:
    """Whether it begins with ``<scheme>://``."""
    found = _SCHEME.match(text)
    return found is not None and found[2] == "/"


def parse_location(text: str | os.PathLike[str]) -> ShardLocation | None:
    """Read a location; None where the text has another form, as the path of an ordinary audio file.

    A URL that has been through ``pathlib`` has lost one slash of its ``//``; it is put back.
    """
    plain = os.fspath(text)
    if ".tar:" not in plain:  # called for every file that is opened
        return None
    found = _LOCATION.fullmatch(plain)
    return found and ShardLocation(_mend_scheme(found[1]), int(found[2]), int(found[3]))


def format_location(location: ShardLocation) -> str:
    """The string that ``parse_location`` reads.

    Raises:
        ValueError: the archive is not named ``*.tar``, or offset or size is no count of bytes.
    """
    text = f"{location.archive}:{location.offset}:{location.size}"
    if not _LOCATION.fullmatch(text):
        raise ValueError(f"{location} cannot be written as {LOCATION_FORM}")
    return text


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether an audio file exists, or the archive that a location leads to; of a URL only reading can tell."""
    location = parse_location(path)
    if location is None:
        return os.path.exists(path)
    return location.is_remote or os.path.exists(location.archive)


def _mend_scheme(text: str) -> str:
    found = _SCHEME.match(text)
    if found is None or found[2]:
        return text
    # file:///a became file:/a, every other scheme://host/a became scheme:/host/a.
    slashes = "///" if found[1].lower() == "file" else "//"
    return f"{found[1]}:{slashes}{text[found.end() :]}"
