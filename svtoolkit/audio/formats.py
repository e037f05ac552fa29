"""Which files are audio, by their names."""

from __future__ import annotations

import os
from functools import cache

import soundfile

from svtoolkit.audio.m4a import EXTENSIONS

ALIASES = {
    "aif": "AIFF",
    "aifc": "AIFF",
    "oga": "OGG",
    "opus": "OGG",
    "snd": "AU",
    "sph": "NIST",
}
"""Extensions that are not the name of their format."""

HEADERLESS = "RAW"
"""Needs a rate and a sample type that no file says."""


@cache
def audio_extensions() -> frozenset[str]:
    """Lower-case extensions, without the dot: formats with a header of the installed libsndfile, and FFmpeg's."""
    formats = set(soundfile.available_formats()) - {HEADERLESS}
    aliases = {alias for alias, name in ALIASES.items() if name in formats}
    known = {name.lower() for name in formats} | aliases
    return frozenset(known | {extension.removeprefix(".") for extension in EXTENSIONS})


def extension_of(path: str | os.PathLike[str]) -> str:
    """In lower case, without the dot."""
    return os.path.splitext(path)[1].removeprefix(".").lower()


def is_audio(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file is that of audio."""
    return extension_of(path) in audio_extensions()
