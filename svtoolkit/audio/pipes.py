"""Piped commands of a wav.scp (`sph2pipe -f wav a.sph |`), which Kaldi runs whenever it reads such an entry.

Here they are never run unasked: whoever wrote the list would decide what is executed. `svt convert` runs them where it
is told to, once for each recording, and writes what they print to files.
"""

from __future__ import annotations

import io
import shlex
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile

from svtoolkit.audio.files import LENGTH_UNKNOWN, convert_rate, read_stretch
from svtoolkit.errors import UserError

SHOWN = 200
"""Characters of what a failed command has said."""


def is_pipe(location: str) -> bool:
    """Whether an entry of a wav.scp is a command, whose output is the audio, or that takes audio."""
    return location.endswith("|") or location.startswith("|")


def how_to_run_pipes(folder: Path, root: str | Path | None) -> str:
    """For a message about a data directory, whose relative paths are taken from ``root``."""
    words = ["svt", "convert", "--source", str(folder), "--out", f"{folder}_files", "--run-pipes", "true"]
    words += [] if root is None else ["--root", str(root)]
    return (
        "commands of a list are never run unasked, since they may do anything; if you trust them, "
        f"`{shlex.join(words)}` runs each once and writes files"
    )


def read_pipe(
    location: str,
    *,
    folder: str | Path | None,
    sample_rate: int,
    start: float = 0.0,
    duration: float | None = None,
    channel: int | None = None,
) -> np.ndarray:
    """Run a command and decode a stretch of the audio that it prints.

    Args:
        location: the entry, with its ``|`` at the end; run by bash as Kaldi does.
        folder: working directory of the command; None: this one.
        sample_rate: that the audio is converted to, in Hz.
        start, duration, channel: as for ``read_audio``.

    Returns:
        float32, (samples,).

    Raises:
        UserError: the command failed, printed no audio, or several channels and none is chosen.
    """
    if location.startswith("|"):
        raise UserError(f"{location!r}: is a command that takes audio, expected one that prints it, ending with |")
    try:
        samples, rate = _decode(
            _run(location, None if folder is None else str(folder)), location, start, duration, channel
        )
    except soundfile.SoundFileError as error:
        raise UserError(f"{location!r}: prints nothing that can be read as audio ({error}); correct it") from error
    return samples if rate == sample_rate else convert_rate(samples, rate, sample_rate)


def _decode(
    printed: bytes, location: str, start: float, duration: float | None, channel: int | None
) -> tuple[np.ndarray, int]:
    """Samples of one channel, and their rate."""
    with soundfile.SoundFile(io.BytesIO(printed)) as stream:
        if stream.frames >= LENGTH_UNKNOWN:
            raise UserError(f"{location!r}: prints audio that does not say how long it is; let it print wav")
        if stream.channels > 1 and channel is None:
            raise UserError(
                f"{location!r}: prints {stream.channels} channels, expected one; choose one with channel=0 "
                "(counted from 0)"
            )
        if channel is not None and not 0 <= channel < stream.channels:
            raise UserError(f"{location!r}: there is no channel {channel}, it prints {stream.channels} (from 0)")
        samples = read_stretch(location, stream, start, duration)
        mono = samples if samples.ndim == 1 else np.ascontiguousarray(samples[:, channel or 0])
        return mono, stream.samplerate


@lru_cache(maxsize=1)  # the segments of one recording follow each other
def _run(location: str, folder: str | None) -> bytes:
    command = location.removesuffix("|").strip()
    # pipefail: what `a | b` prints is not whole where a has failed.
    words = ["bash", "-o", "pipefail", "-c", command]
    try:
        done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise UserError(f"{location!r}: cannot be run ({error}); piped commands need bash") from error
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-SHOWN:]
        raise UserError(f"{location!r}: failed with status {done.returncode}{said and f' ({said})'}; correct it")
    return done.stdout
