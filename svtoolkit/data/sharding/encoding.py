"""The bytes of one utterance as a shard holds them: FLAC of 16 bits, or the file as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svtoolkit.audio.files import convert_rate, open_audio, read_stretch
from svtoolkit.audio.inspection import inspect_whole
from svtoolkit.audio.pcm16 import encode_pcm16
from svtoolkit.config import ShardConfig
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError

FORMATS = ("flac", "original")
DESCRIPTION = "json"
"""Extension of the member that describes an utterance, which no audio may have."""

_EXTENSION = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True)
class EncodedUtterance:
    """Content and extension of the audio member, its length in seconds and its sample rate in Hz."""

    content: bytes
    extension: str
    seconds: float
    sample_rate: int


def encode_utterance(utterance: Utterance, settings: ShardConfig) -> EncodedUtterance:
    """Read an utterance and bring it into the form of the shard.

    Raises:
        UserError: missing or unreadable audio, no samples, NaN or infinity among them, another rate, several channels
            and none chosen.
    """
    if settings.format == "original":
        info = inspect_whole(utterance.path)
        _check_rate(utterance, info.sample_rate, settings)
        return EncodedUtterance(_read_file(utterance), extension_of(utterance), info.seconds, info.sample_rate)
    samples, rate = _decode(utterance, settings)
    if not len(samples):
        raise UserError(
            f"{utterance.path}: there are no samples at {utterance.offset:g} s, where {utterance.utterance_id!r} "
            "begins; correct the segment or drop it"
        )
    if not np.isfinite(samples).all():
        raise UserError(f"{utterance.path}: has samples that are NaN or infinite; re-create the file")
    return EncodedUtterance(encode_pcm16(samples, rate, "flac"), "flac", len(samples) / rate, rate)


def _decode(utterance: Utterance, settings: ShardConfig) -> tuple[np.ndarray, int]:
    """float32 samples, (samples,), and their rate. The file is opened once: AAC is decoded as a whole each time."""
    with open_audio(utterance.path) as stream:
        rate = stream.samplerate
        _check_rate(utterance, rate, settings)
        if stream.channels > 1 and settings.channel is None:
            raise UserError(f"{utterance.path}: {stream.channels} channels, expected one; choose one with channel=0")
        channel = settings.channel or 0
        if channel >= stream.channels:
            raise UserError(f"{utterance.path}: there is no channel {channel}, the file has {stream.channels}")
        samples = read_stretch(
            utterance.path, stream, utterance.offset, None if utterance.whole_file else utterance.duration
        )
    if samples.ndim > 1:
        samples = np.ascontiguousarray(samples[:, channel])
    if settings.sample_rate is None or settings.sample_rate == rate:
        return samples, rate
    return convert_rate(samples, rate, settings.sample_rate), settings.sample_rate


def _check_rate(utterance: Utterance, rate: int, settings: ShardConfig) -> None:
    if settings.sample_rate not in (None, rate) and not settings.resample:
        raise UserError(
            f"{utterance.path}: sample rate is {rate} Hz, expected {settings.sample_rate} Hz; set sample_rate={rate}, "
            "or resample=true with format=flac"
        )


def extension_of(utterance: Utterance) -> str:
    """Extension of the file of an utterance, lower case, without its dot.

    Raises:
        UserError: there is none by which a reader would know the format.
    """
    suffix = Path(utterance.path).suffix
    extension = suffix.removeprefix(".").lower()
    if not _EXTENSION.fullmatch(extension) or extension == DESCRIPTION:
        raise UserError(
            f"{utterance.path}: {suffix!r} is no extension of an audio format, by which the shard would "
            "name the file; rename it, or use format=flac"
        )
    return extension


def _read_file(utterance: Utterance) -> bytes:
    try:
        return Path(utterance.path).read_bytes()
    except OSError as error:
        raise UserError(f"{utterance.path}: cannot be read ({error.strerror}); check the file") from error
