"""Files that FFmpeg alone reads, written with PyAV; tests that need them are skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

PACKET = 1024
"""Samples of an AAC packet, and of the priming that FFmpeg's encoder puts in front."""


def write_ffmpeg(
    path: Path,
    samples: np.ndarray,
    rate: int,
    *,
    container: str = "ipod",
    codec: str = "aac",
    sample_format: str = "fltp",
    options: Mapping[str, str] | None = None,
) -> Path:
    """Encode samples of the type that ``sample_format`` asks for: (samples,) or (samples, channels)."""
    av = pytest.importorskip("av", reason="PyAV (extra voxceleb) is not installed")
    channels = samples.reshape(len(samples), -1)
    planar = sample_format.endswith("p")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format=container, options=dict(options or {})) as output:
        stream = output.add_stream(codec, rate=rate, layout="mono" if channels.shape[1] == 1 else "stereo")
        for first in range(0, len(channels), PACKET):
            piece = channels[first : first + PACKET]
            array = piece.T if planar else piece.reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(array), format=sample_format, layout=stream.layout.name
            )
            frame.rate, frame.pts, frame.time_base = rate, first, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def write_m4a(path: Path, samples: np.ndarray, rate: int = 16000) -> Path:
    """AAC in m4a, as VoxCeleb2 comes."""
    return write_ffmpeg(path, samples.astype(np.float32), rate)


def signal_to_noise(original: np.ndarray, decoded: np.ndarray) -> float:
    """In dB, of two signals that begin together; over the length of the shorter."""
    length = min(len(original), len(decoded))
    original, decoded = original[:length].astype(np.float64), decoded[:length].astype(np.float64)
    return 10 * float(np.log10(np.mean(original**2) / np.mean((original - decoded) ** 2)))
