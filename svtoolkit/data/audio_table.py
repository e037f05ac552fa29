"""The table in which a data directory lists its utterances: audio files, shards, features; where entries point."""

from __future__ import annotations

from pathlib import Path

from svtoolkit.audio.shards.location import format_location, is_url, parse_location
from svtoolkit.data.shard_index import CHECKSUMS, INDEX
from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

FEATURES = "feats.scp"
"""Lists the features of utterances: `utterance archive:offset`, as Kaldi's tools do."""

AUDIO_TABLES = {"files": "wav.scp", "shards": INDEX, "features": FEATURES}
"""Where the utterances of a data directory may be listed."""


def find_source(folder: Path, source: str | None, *, key: str = "data.source") -> str:
    """files, shards or features: as asked for, else what is there, audio first.

    Args:
        folder: the data directory.
        source: what was asked for; None: nothing.
        key: that it was asked for by.

    Raises:
        UserError: an unknown source.
    """
    if source is not None and source not in AUDIO_TABLES:
        raise UserError(f"{key} is {source!r}, expected files, shards or features, or null for what is there")
    if source is not None or is_regular(folder / "wav.scp"):
        return source or "files"
    if is_regular(folder / INDEX) or is_regular(folder / CHECKSUMS):
        return "shards"
    return "features" if is_regular(folder / FEATURES) else "files"


def choose_audio_table(folder: Path, source: str | None) -> str:
    """Name of the table in which the audio of a data directory is listed; that of features where they are asked for.

    Raises:
        UserError: an unknown source.
    """
    found = find_source(folder, source)
    return AUDIO_TABLES["files" if source is None and found == "features" else found]


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
