"""Audio that libsndfile does not read, AAC first of all, decoded by FFmpeg through PyAV (extra ``voxceleb``).

PyAV (https://pyav.basswood-io.com) brings FFmpeg's libraries along and is imported on first use. A file is decoded from
end to end: what its codec added is known only then.

- Priming: an encoder puts samples in front of the first one (AAC: 1024). MP4 (edit list) and Matroska (codec delay)
  say how many, and FFmpeg takes them off. Raw AAC (.aac) does not say; they stay.
- Padding: the last packet is filled up. MP4 says how long it is, and the rest is cut off here; Matroska says so for
  Opus, and FFmpeg cuts it off.
"""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, BinaryIO

import numpy as np

from svtoolkit.errors import UserError

EXTENSIONS = frozenset(".m4a .m4b .mp4 .mov .3gp .aac .webm .mka .mkv".split())
"""Of files that are left to FFmpeg, in lower case."""

DEMUXERS = "mov,aac,matroska"
"""FFmpeg's readers of these files; any other, such as that of playlists, could open files that nobody asked for."""

WITHOUT_LENGTH = "aac"
"""Raw AAC: what FFmpeg says of its length is an estimate."""

TOLERANCE = 0.1
"""Seconds that a whole file may end before its header says; or two packets, where those are longer."""


def is_left_to_ffmpeg(path: str | os.PathLike[str]) -> bool:
    """The extension is one of a format that libsndfile does not read and FFmpeg does."""
    return os.path.splitext(path)[1].lower() in EXTENSIONS


def import_av() -> ModuleType:
    """PyAV.

    Raises:
        UserError: it is not installed; says how to install it.
    """
    try:
        import av
    except ImportError as error:
        raise UserError(
            "m4a, mp4, aac and webm are decoded by PyAV, which is not installed: install it with "
            "`pip install av`, or convert the files to flac"
        ) from error
    return av


def decode_file(path: str | Path, member: BinaryIO | None = None) -> tuple[np.ndarray, int]:
    """Decode the first audio stream of a file.

    Returns:
        float32 samples in [-1, 1], shape (samples, channels), and their rate in Hz.

    Raises:
        UserError: PyAV is not installed; the file is no audio, is cut off or is broken.
    """
    av = import_av()
    # As a file on disk, whatever its name: FFmpeg would take `http:...` for an address.
    options = {"format_whitelist": DEMUXERS, "protocol_whitelist": "file"}
    try:
        with av.open("file:" + os.path.abspath(path) if member is None else member, options=options) as container:
            if not container.streams.audio:
                raise UserError(f"{path}: holds no audio, or is cut off; copy or download it again, or drop it")
            return _decode_stream(path, container, container.streams.audio[0])
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"{path}: cannot be decoded ({reason}): the file is cut off or broken; copy or download it again, or "
            "drop it from the list"
        ) from error


def _decode_stream(path: str | Path, container: Any, stream: Any) -> tuple[np.ndarray, int]:
    stream.thread_count = 1  # the files are what is worked on in parallel
    frames: list[np.ndarray] = []
    rates: set[int] = set()
    first: int | None = None
    end: int | None = None
    for packet in container.demux(stream):
        if packet.pts is not None and packet.duration:
            end = max(end or 0, packet.pts + packet.duration)
        for frame in packet.decode():
            first = frame.pts if first is None else first
            frames.append(_as_float(frame))
            rates.add(frame.sample_rate)
    if not frames:
        _check_length(path, container, stream, 0.0, 0.0)
        return np.zeros((0, stream.channels or 1), np.float32), stream.rate
    if len(rates) > 1 or len({frame.shape[1] for frame in frames}) > 1:
        raise UserError(f"{path}: the rate or the number of channels changes within the file; convert it to flac")
    samples, rate = np.concatenate(frames), rates.pop()
    if "mp4" in container.format.name.split(",") and first is not None and end is not None:
        length = round((end - first) * Fraction(stream.time_base) * rate)
        if 0 < len(samples) - length < len(frames[-1]):
            samples = samples[:length]
    _check_length(path, container, stream, len(samples) / rate, max(map(len, frames)) / rate)
    return np.ascontiguousarray(samples), rate


def _as_float(frame: Any) -> np.ndarray:
    """Planar or interleaved samples of any type -> float32, (samples, channels)."""
    array = frame.to_ndarray()
    samples = array.T if frame.format.is_planar else array.reshape(-1, frame.layout.nb_channels)
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - 128) / 128
    if np.issubdtype(samples.dtype, np.integer):
        return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)
    return samples.astype(np.float32)


def _check_length(path: str | Path, container: Any, stream: Any, seconds: float, packet_seconds: float) -> None:
    if container.format.name == WITHOUT_LENGTH:
        return
    stated = 0.0
    if stream.duration:
        stated = float(stream.duration * stream.time_base)
    elif container.duration:
        stated = container.duration / 1e6  # AV_TIME_BASE
    if stated - seconds > max(TOLERANCE, 2 * packet_seconds):
        raise UserError(
            f"{path}: the audio ends after {seconds:.2f} s, the header says {stated:.2f} s: the file is cut off; copy "
            "or download it again, or drop it from the list"
        )


class DecodedAudio:
    """A decoded file with what callers of ``open_audio`` use of ``soundfile.SoundFile``.

    Attributes:
        samplerate: in Hz.
        frames: samples a channel.
        channels: their number.
    """

    def __init__(self, path: str | Path, member: BinaryIO | None = None) -> None:
        """Decode the file.

        Raises:
            UserError: as ``decode_file``.
        """
        self._samples, self.samplerate = decode_file(path, member)
        self.frames, self.channels = self._samples.shape
        self._position = 0

    def __enter__(self) -> DecodedAudio:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._samples = self._samples[:0]

    def seek(self, frame: int) -> int:
        """Go to a sample, counted from 0 at the beginning of the file."""
        if not 0 <= frame <= self.frames:
            raise ValueError(f"the file has samples 0 to {self.frames}, there is no sample {frame} to go to")
        self._position = frame
        return frame

    def read(self, frames: int = -1, dtype: str = "float32", always_2d: bool = False) -> np.ndarray:
        """The next samples, to the end of the file if ``frames`` is negative; fewer where the file ends.

        Returns:
            float32, (samples, channels); (samples,) if there is one channel and not ``always_2d``.
        """
        if dtype != "float32":
            raise ValueError(f"samples are given as float32, not as {dtype}")
        stop = self.frames if frames < 0 else min(self._position + frames, self.frames)
        samples = self._samples[self._position : stop]
        self._position = stop
        return samples.copy() if always_2d or self.channels > 1 else samples[:, 0].copy()
