"""The audio of a request, in memory alone, refused by what its header says before anything is decoded."""

from __future__ import annotations

import io

import numpy as np
import soundfile

from svtoolkit.audio.files import read_audio
from svtoolkit.errors import UserError

MOST_RATE = 192_000
"""Hz: samples of all channels that a second may have."""


class TooLargeError(UserError):
    """More audio than a request may bring."""


class Upload(io.BytesIO):
    """Bytes with the name that messages call them by."""

    name = "the recording"


def decode(
    content: bytes, *, sample_rate: int, max_seconds: float, channel: int | None = None, resample: bool = True
) -> np.ndarray:
    """Samples of a recording, (samples,) float32 in [-1, 1] at ``sample_rate``.

    Args:
        content: a file as libsndfile reads it: wav, flac, ogg (vorbis, opus), mp3, ...
        max_seconds: longer ones are not decoded.
        channel: to take of several, counted from 0.
        resample: convert another rate instead of refusing it.

    Raises:
        TooLargeError: it is too long.
        UserError: it cannot be read, or has several channels and none is chosen.
    """
    if not content:
        raise UserError("the recording: is empty, expected an audio file (wav, flac, ogg or mp3) as the request's body")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as stream:
            frames, rate, channels = stream.frames, stream.samplerate, stream.channels
    except (soundfile.SoundFileError, OSError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"the recording: cannot be read as audio ({error}); expected wav, flac, ogg or mp3 as the request's body"
        ) from error
    if frames > max_seconds * rate or frames * channels > max_seconds * MOST_RATE:
        raise TooLargeError(
            f"the recording: {frames / max(rate, 1):.1f} s of {channels} channels at {rate} Hz, expected "
            f"{max_seconds:g} s or less, and {MOST_RATE} samples a second or less of all channels; send a part of it"
        )
    return read_audio(Upload(content), sample_rate=sample_rate, channel=channel, resample=resample)
