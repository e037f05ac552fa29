"""What a shard is made of: tar members named after utterances, as WebDataset groups them.

WebDataset (https://github.com/webdataset/webdataset) takes what precedes the first dot of a member's base name as
the key of a sample and what follows as the name of a field. Dots and slashes of an utterance id are therefore written
as %2E and %2F (and so are % itself, the backslash and control characters); the `.json` beside the audio holds the id
as it is, and ``urllib.parse.unquote`` gives it back, too.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import IO

TABLE_OF_ESCAPES = {ord(character): f"%{ord(character):02X}" for character in "%./\\\x7f"} | {
    code: f"%{code:02X}" for code in range(32)
}

NAME_FIELD = 100
"""Bytes of a name that fit the tar header itself; a longer one has a block of its own before it (GNU tar)."""


def member_key(utterance_id: str) -> str:
    """The name of an utterance's members up to their extension."""
    return utterance_id.translate(TABLE_OF_ESCAPES)


def describe(utterance_id: str, speaker: str, seconds: float, sample_rate: int) -> bytes:
    """Content of the member `<key>.json`."""
    facts = {"utterance_id": utterance_id, "speaker": speaker, "seconds": seconds, "sample_rate": sample_rate}
    return json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()


class ShardStream:
    """Writes a tar archive whose bytes depend on names and contents alone, and hashes it on the way.

    Attributes:
        size: bytes written so far.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def add(self, name: str, content: bytes) -> int:
        """Append a file; returns the offset of its content."""
        header = tarfile.TarInfo(name)  # its defaults: mode 0644, owner 0, time 0
        header.size = len(content)
        self._write(header.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict"))
        offset = self.size
        self._write(content)
        self._write(bytes(-len(content) % tarfile.BLOCKSIZE))
        return offset

    def finish(self) -> None:
        """The end mark of an archive: two empty blocks, then padding to a whole record."""
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._write(bytes(-self.size % tarfile.RECORDSIZE))

    def _write(self, content: bytes) -> None:
        self._stream.write(content)
        self._digest.update(content)
        self.size += len(content)


def explain_header(block: bytes, utterance_id: str, size: int) -> str | None:
    """What is wrong with the 512 bytes before an utterance's audio; None where they are its tar header.

    Args:
        block: the bytes.
        utterance_id: whose audio should follow.
        size: bytes that the audio should have.
    """
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        return f"there is no tar header before it ({error})"
    found = header.name.encode("utf-8", "surrogateescape")
    expected = f"{member_key(utterance_id)}.".encode()
    cut = len(found) == NAME_FIELD
    # Of a name that fills the field the rest may be elsewhere.
    of_utterance = found.startswith(expected[:NAME_FIELD] if cut else expected) and found != expected + b"json"
    if not of_utterance or not header.isreg():
        return f"the member there is {header.name!r}"
    if header.size != size:
        return f"the member there has {header.size} bytes instead of {size}"
    return None
