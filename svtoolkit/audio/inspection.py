"""What audio files are by their headers, one or many of them, and whether they are whole."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import soundfile

from svtoolkit.audio.files import open_audio, read_stretch
from svtoolkit.errors import UserError
from svtoolkit.system.threads import map_in_order

Key = TypeVar("Key", bound=Hashable)

TELLING = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU"}
"""Formats whose header shows that a file is cut off."""

END = 0.2
"""Seconds decoded of other files to see that they have an end; more than ``files.TOLERANCE``."""

SHOWN_FAULTS = 3
"""Files that a message about many broken files names."""


@dataclass(frozen=True)
class AudioInfo:
    """What the header of a file says: rate in Hz, length in samples a channel, number of channels."""

    sample_rate: int
    samples: int
    channels: int

    @property
    def seconds(self) -> float:
        return self.samples / self.sample_rate


def inspect_audio(path: str | Path) -> AudioInfo:
    """Read the header of an audio file.

    Raises:
        UserError: the file is missing or no audio that can be read.
    """
    with open_audio(path) as stream:
        return AudioInfo(stream.samplerate, stream.frames, stream.channels)


def inspect_whole(path: str | Path) -> AudioInfo:
    """The same, of a usable file: it has samples, and where compression hides a cut, its end can be decoded.

    Raises:
        UserError: the file is missing, no audio that can be read, empty or cut off.
    """
    with open_audio(path) as stream:
        info = AudioInfo(stream.samplerate, stream.frames, stream.channels)
        if not info.samples:
            raise UserError(f"{path}: the file holds no sample; drop or re-create it")
        if isinstance(stream, soundfile.SoundFile) and stream.format not in TELLING:
            try:
                read_stretch(path, stream, max(0.0, info.seconds - END), None)
            except soundfile.SoundFileError as error:
                raise UserError(
                    f"{path}: its end, at {info.seconds:.2f} s by the header, cannot be decoded ({error}): the file is "
                    "cut off or broken; copy or unpack it again, or drop it"
                ) from error
    return info


def measure_durations(paths: Mapping[Key, str | Path], *, jobs: int = 1) -> dict[Key, float]:
    """Find out how long many files are, each as ``inspect_whole`` sees it.

    Args:
        paths: any key -> audio file.
        jobs: files opened at a time.

    Returns:
        key -> length in seconds, in the order of ``paths``.

    Raises:
        UserError: files that are missing, unreadable, cut off or hold no sample; names the first few and their number.
    """
    durations, reasons = try_durations(paths, jobs=jobs)
    if reasons:
        shown = "; ".join(list(reasons.values())[:SHOWN_FAULTS])
        more = f"; and {len(reasons) - SHOWN_FAULTS} more" if len(reasons) > SHOWN_FAULTS else ""
        raise UserError(f"{len(reasons)} of {len(paths)} audio files cannot be used: {shown}{more}")
    return durations


def try_durations(
    paths: Mapping[Key, str | Path], *, jobs: int = 1, progress: Callable[[int], object] | None = None
) -> tuple[dict[Key, float], dict[Key, str]]:
    """The same where some files may be bad.

    Args:
        paths, jobs: as for ``measure_durations``.
        progress: called with the number of files read since its last call.

    Returns:
        key -> length in seconds of the files that can be used, and key -> reason of the others.
    """

    def measure(path: str | Path) -> float | str:
        try:
            return inspect_whole(path).seconds
        except UserError as error:
            return str(error)

    durations: dict[Key, float] = {}
    reasons: dict[Key, str] = {}
    for key, result in zip(paths, map_in_order(measure, paths.values(), jobs), strict=True):
        if isinstance(result, str):
            reasons[key] = result
        else:
            durations[key] = result
        if progress is not None:
            progress(1)
    return durations, reasons
