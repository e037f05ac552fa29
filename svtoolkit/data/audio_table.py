"""The table in which a data directory lists its audio, of files or of shards, and where its entries point."""

from __future__ import annotations

from pathlib import Path

from svtoolkit.audio.shards.location import format_location, is_url, parse_location
from svtoolkit.data.shard_index import CHECKSUMS, INDEX
from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

AUDIO_TABLES = {"files": "wav.scp", "shards": INDEX}
"""Where the audio of a data directory may be listed."""


def choose_audio_table(folder: Path, source: str | None) -> str:
    """Name of the table in which the audio of a data directory is listed.

    Raises:
        UserError: an unknown source.
    """
    if source is None:
        of_shards = folder / INDEX, folder / CHECKSUMS
        is_sharded = not is_regular(folder / "wav.scp") and any(map(is_regular, of_shards))
        return AUDIO_TABLES["shards" if is_sharded else "files"]
    if source not in AUDIO_TABLES:
        raise UserError(f"data.source is {source!r}, expected {' or '.join(AUDIO_TABLES)}, or null for what is there")
    return AUDIO_TABLES[source]


def resolve(location: str, root: Path) -> Path:
    """Path of a file that a list names, or location in a shard; ``Path`` makes // of a URL /, see ``make_absolute``."""
    path = Path(location)
    if path.is_absolute():
        return path
    shard = parse_location(location)
    return path if shard is not None and shard.is_remote else root / path


def make_absolute(path: Path) -> str:
    """The path for a list that is read from any working directory; restores the // of URLs."""
    shard = parse_location(path)
    return format_location(shard) if shard is not None and shard.is_remote else str(path.absolute())


def shard_base(folder: Path, root: str | Path | None) -> str:
    """Folder or URL that relative shards are taken from."""
    return str(folder.absolute()) if root is None else str(root) if is_url(str(root)) else str(Path(root).absolute())
