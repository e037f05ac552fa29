"""The tables by which a directory of shards is read: `shards.scp` finds utterances, `shards.sha256` shows damage.

`shards.scp` takes the place of wav.scp: `utterance <archive>:<offset of the audio>:<its size>`, sorted in C locale.
`shards.sha256` is what `sha256sum` prints, so that `sha256sum -c shards.sha256` checks the archives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from svtoolkit.audio.shards.location import LOCATION_FORM, ShardLocation, parse_location
from svtoolkit.data.tables import Fault
from svtoolkit.system.regular_file import is_regular

INDEX = "shards.scp"
CHECKSUMS = "shards.sha256"

_CHECKSUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def parse_shard_index(
    table: Mapping[str, tuple[int, str]], faults: list[Fault], base: str | os.PathLike[str]
) -> dict[str, ShardLocation]:
    """Entries of `shards.scp`; faults of those that are none are appended.

    Args:
        table: utterance -> (line, value), as ``read_table`` gives it.
        faults: list that is added to.
        base: folder or URL that relative archives are taken from: the data directory, or where its shards lie.
    """
    locations: dict[str, ShardLocation] = {}
    for utterance, (line, value) in table.items():
        location = parse_location(value)
        if location is None:
            message = f"found {value!r}, expected {LOCATION_FORM}; write the shards and their index with `svt shard`"
            faults.append(Fault("malformed", f"{INDEX}:{line}", message, utterance))
        else:
            locations[utterance] = location.below(base)
    return locations


def read_checksums(folder: Path, faults: list[Fault]) -> dict[str, tuple[int, str]]:
    """Read `shards.sha256`: name of each archive -> (line, digest); lines of another form are added to the faults."""
    checksums: dict[str, tuple[int, str]] = {}
    file = folder / CHECKSUMS
    if not is_regular(file):
        return checksums
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="backslashreplace").splitlines(), start=1):
        found = _CHECKSUM_LINE.fullmatch(line)
        if found:
            checksums[found[2]] = (number, found[1].lower())
        elif line.strip():
            message = f"found {line!r}, expected `digest  archive` as `sha256sum` prints it; make the list again"
            faults.append(Fault("malformed", f"{CHECKSUMS}:{number}", message))
    return checksums
