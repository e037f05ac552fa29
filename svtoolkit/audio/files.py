"""Audio files by slice: only the samples that are wanted are decoded."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import soxr

from svtoolkit.audio.m4a import DecodedAudio, is_left_to_ffmpeg
from svtoolkit.audio.shards.location import is_there, parse_location
from svtoolkit.audio.shards.reader import open_member
from svtoolkit.errors import UserError
from svtoolkit.system.foreign_path import remedy_of_windows_path
from svtoolkit.system.regular_file import check_regular

LENGTH_UNKNOWN = 2**62
"""libsndfile gives SF_COUNT_MAX (2^63 - 1) samples where a FLAC header leaves the length open."""

CUT_OFF = re.compile(r"^ *(?:data|SSND|Data Size|Riff size|riff) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
"""What libsndfile notes where WAV, AIFF, AU, RF64 or W64 announce more bytes of samples than the file has."""

PLACEHOLDER = 0x7FFF0000
"""Bytes: a program that writes to a pipe announces this many or more, not knowing how many will come."""

TOLERANCE = 0.05
"""Seconds that may be missing at the end: some programs count their header among the samples."""

MOST_SAMPLES_A_BYTE = 10_000
"""Samples a channel that a file can hold in a byte: of digital silence FLAC and Opus hold some thousands."""

RATES = (1000, 1_000_000)
"""Hz, the lowest and the highest of sound: converted from another, some samples would become gigabytes."""

BLOCK = 1 << 24
"""Samples of all channels that are decoded at a time: memory is taken for what is there, not for what is promised."""


@contextmanager
def open_audio(path: str | Path | BinaryIO) -> Iterator[soundfile.SoundFile | DecodedAudio]:
    """Open an audio file, by its path or as an object; what goes wrong inside the block becomes a sentence about it.

    What soundfile (libsndfile) does not read and FFmpeg does, by its extension (m4a, mp4, aac, webm), is decoded as a
    whole: a slice costs as much as the file.

    Raises:
        UserError: the file is missing, no audio that can be read, broken where it is read or, by its header, cut off,
            or its header does not say how long it is.
    """
    with ExitStack() as opened:
        size: int | None = None
        if isinstance(path, str | Path):
            location = parse_location(path)
            member = opened.enter_context(open_member(location)) if location else None
            if location is None:
                check_regular(path)
            else:
                size = location.size
        else:
            member, path = _binary(path), name_of(path)
            size = member.seek(0, os.SEEK_END)
            member.seek(0)
        try:
            stream = soundfile.SoundFile(str(path) if member is None else member)
        except (soundfile.SoundFileError, OSError, TypeError) as error:
            if member is not None:
                member.seek(0)
                stream = DecodedAudio(path, member)
            elif is_left_to_ffmpeg(path) and os.path.exists(path):
                stream = DecodedAudio(path)
            else:
                # TypeError: soundfile takes a name in .raw for headerless samples and asks for their rate.
                raise _unreadable(path, error) from error
        opened.enter_context(stream)
        if stream.frames >= LENGTH_UNKNOWN:
            raise UserError(
                f"{path}: the header does not say how long the audio is (written to a pipe); expected a length, "
                "without which no slice can be found; re-encode the file, for example with `flac` or `sox`"
            )
        if isinstance(stream, soundfile.SoundFile):
            _check_header(path, stream, os.path.getsize(path) if size is None else size)
        try:
            yield stream
        except (soundfile.SoundFileError, OSError) as error:
            raise _unreadable(path, error) from error


def name_of(audio: str | Path | BinaryIO) -> str:
    """What messages call a file or a file object."""
    if isinstance(audio, str | Path):
        return str(audio)
    name = getattr(audio, "name", None)
    return name if isinstance(name, str) else f"<{type(audio).__name__}>"


def _binary(file: BinaryIO) -> BinaryIO:
    """A file object that can be sought in."""
    if isinstance(file, io.TextIOBase):
        raise UserError(f"{name_of(file)}: is open as text, expected bytes; open it with mode 'rb'")
    return file if file.seekable() else io.BytesIO(file.read())


def read_audio(
    path: str | Path | BinaryIO,
    *,
    sample_rate: int,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
    resample: bool = False,
    keys: str = "",
) -> np.ndarray:
    """Decode a stretch of an audio file.

    Args:
        path: a file of any format that ``open_audio`` reads, or one that is open for reading as bytes.
        sample_rate: rate in Hz that the samples must have.
        start: first sample, in seconds from the beginning of the file.
        duration: length in seconds; to the end of the file if None.
        channel: channel to take of a multi-channel file, counted from 0.
        resample: convert a file of another rate instead of refusing it.
        keys: what stands before ``channel`` and ``resample`` where a user sets them, for messages: ``data.``.

    Returns:
        float32 samples in [-1, 1], shape (samples,); fewer than asked for where the file ends earlier.

    Raises:
        UserError: missing, unreadable or cut off file, another rate, several channels and none chosen.
    """
    if start < 0 or (duration is not None and duration < 0):
        raise ValueError(f"start and duration must be 0 s or more, found {start} and {duration}")
    named = name_of(path)
    with open_audio(path) as stream:
        rate = stream.samplerate
        if rate != sample_rate and not resample:
            own_rate = f"set features.sample_rate={rate} where all have it, " if keys else ""
            raise UserError(
                f"{named}: sample rate is {rate} Hz, expected {sample_rate} Hz; "
                f"{own_rate}allow {keys}resample=true, or convert the audio (`svt convert`)"
            )
        if stream.channels > 1 and channel is None:
            raise UserError(
                f"{named}: {stream.channels} channels, expected one; choose one with {keys}channel=0 (counted from 0)"
            )
        if channel is not None and not 0 <= channel < stream.channels:
            raise UserError(f"{named}: there is no channel {channel}, the file has {stream.channels} (counted from 0)")
        samples = read_stretch(named, stream, start, duration)
    mono = samples if samples.ndim == 1 else np.ascontiguousarray(samples[:, channel or 0])
    return mono if rate == sample_rate else convert_rate(mono, rate, sample_rate)


def read_stretch(
    path: str | Path, stream: soundfile.SoundFile | DecodedAudio, start: float, duration: float | None
) -> np.ndarray:
    """Decode a stretch of a file that ``open_audio`` has just opened.

    Args:
        path: the file, for messages.
        stream: not read from yet.
        start, duration: in seconds, as for ``read_audio``.

    Returns:
        float32 samples in [-1, 1], (samples,), or (samples, channels) of several; fewer than asked for where the file
        ends earlier.

    Raises:
        UserError: the file ends earlier than its header says.
    """
    rate = stream.samplerate
    begin = round(min(start * rate, stream.frames))
    left = stream.frames - begin
    wanted = left if duration is None else round(min(duration * rate, left))
    if begin:
        stream.seek(begin)
    if isinstance(stream, soundfile.SoundFile):
        # After a read soundfile seeks to where it is anyway, for which libFLAC decodes again; not in what cannot seek.
        stream.seekable = lambda: False
    samples = _decode(stream, wanted)
    if wanted - len(samples) > TOLERANCE * rate:
        raise UserError(
            f"{path}: has no audio from {(begin + len(samples)) / rate:.2f} s on, its header says it is "
            f"{stream.frames / rate:.2f} s long: the file is cut off; copy or unpack it again, or drop it"
        )
    return samples


def convert_rate(samples: np.ndarray, from_rate: float, to_rate: float) -> np.ndarray:
    """Band-limited rate conversion by libsoxr (quality HQ): (n,) float32 -> (about n * to / from,) float32."""
    return soxr.resample(samples, from_rate, to_rate, quality="HQ")


def _decode(stream: soundfile.SoundFile | DecodedAudio, wanted: int) -> np.ndarray:
    """The next samples, float32, as far as there are some; many of them in blocks."""
    block = BLOCK // stream.channels
    if wanted <= block:
        return stream.read(wanted, dtype="float32")
    parts: list[np.ndarray] = []
    while wanted and (not parts or len(parts[-1]) == block):
        parts.append(stream.read(min(block, wanted), dtype="float32"))
        wanted -= len(parts[-1])
    return np.concatenate(parts)


def _check_header(path: str | Path, stream: soundfile.SoundFile, size: int) -> None:
    """Refuse a file of ``size`` bytes whose header promises what it cannot hold, or which is cut off.

    Of samples without compression, libsndfile reads those that are left.
    """
    lowest, highest = RATES
    if not lowest <= stream.samplerate <= highest:
        raise UserError(
            f"{path}: its header says {stream.samplerate} Hz, expected a sample rate from {lowest} to {highest} Hz; "
            "re-create the file or drop it from the list"
        )
    if stream.frames > MOST_SAMPLES_A_BYTE * size:
        raise UserError(
            f"{path}: its header promises {stream.frames} samples, more than a file of {size} bytes can hold: the "
            "header is broken; copy or unpack the file again, or drop it from the list"
        )
    noted = CUT_OFF.search(stream.extra_info)
    if noted is None:
        return
    stated, found = int(noted[1]), int(noted[2])
    missing = stream.frames / stream.samplerate * (stated / found - 1) if found else TOLERANCE
    if stated < PLACEHOLDER and missing >= TOLERANCE:
        raise UserError(
            f"{path}: holds {found} of the {stated} bytes of audio that its header announces: the file is cut off; "
            "copy or unpack it again, or drop it from the list"
        )


def _unreadable(path: str | Path, error: Exception) -> UserError:
    if not is_there(path):
        remedy = remedy_of_windows_path(path) or "check the path and the root of relative paths"
        return UserError(f"{path}: there is no such file; {remedy}")
    return UserError(f"{path}: cannot be read as audio ({error}); re-create the file or drop it from the list")
