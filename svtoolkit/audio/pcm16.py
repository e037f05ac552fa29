"""Samples as files of 16 bits, in which 16-bit audio stays what it was."""

from __future__ import annotations

import io

import numpy as np
import soundfile

SUBTYPE = "PCM_16"
"""libsndfile's name of the encoding, in FLAC as in WAV."""


def quantise(samples: np.ndarray) -> np.ndarray:
    """float32 in [-1, 1] -> int16, to the nearest step; 16-bit samples come back as they were, louder ones clipped.

    Args:
        samples: of any shape, without NaN and infinity.
    """
    # libsndfile itself would scale by 32767, by which no sample of a 16-bit file would stay what it was.
    with np.errstate(over="ignore"):  # beyond 1e34 they become infinite, and are clipped like all that is too loud
        return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)


def encode_pcm16(samples: np.ndarray, sample_rate: int, audio_format: str) -> bytes:
    """A file of 16 bits.

    Args:
        samples: float32 in [-1, 1], (samples,), without NaN and infinity.
        sample_rate: in Hz.
        audio_format: ``flac`` or ``wav``.
    """
    encoded = io.BytesIO()
    soundfile.write(encoded, quantise(samples), sample_rate, format=audio_format.upper(), subtype=SUBTYPE)
    return encoded.getvalue()
