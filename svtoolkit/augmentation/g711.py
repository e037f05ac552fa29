"""Companding of ITU-T Recommendation G.711 (1988): the 8-bit codes of telephone networks.

As in the reference code that the field shares (Sun's g711.c, Python's audioop, sox), samples of 16 bits are first
shifted down to the 14 bits of mu-law or the 13 bits of A-law.
"""

from __future__ import annotations

import numpy as np

LAWS = ("mu", "a")
"""North America and Japan; the rest of the world."""

MU_BIAS = 33
MU_CLIP = 8158
_MU_SEGMENT_ENDS = (1 << np.arange(6, 14)) - 1  # of the biased magnitude
_A_SEGMENT_ENDS = (1 << np.arange(5, 13)) - 1


def encode(samples: np.ndarray, law: str) -> np.ndarray:
    """int16 samples -> uint8 codes as they are transmitted: with the bit inversions of the law."""
    return (_encode_mu if law == "mu" else _encode_a)(samples.astype(np.int32)).astype(np.uint8)


def decode(codes: np.ndarray, law: str) -> np.ndarray:
    """uint8 codes -> int16 samples."""
    return (_decode_mu if law == "mu" else _decode_a)(codes.astype(np.int32)).astype(np.int16)


def round_trip(law: str) -> np.ndarray:
    """What becomes of every 16-bit sample: float32, (65536,), of -32768 first, in [-1, 1)."""
    samples = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)
    return decode(encode(samples, law), law).astype(np.float32) / 32768


def _encode_mu(samples: np.ndarray) -> np.ndarray:
    shifted = samples >> 2
    magnitude = np.minimum(np.abs(shifted), MU_CLIP) + MU_BIAS
    segment = np.searchsorted(_MU_SEGMENT_ENDS, magnitude)
    code = segment << 4 | (magnitude >> (segment + 1)) & 0xF
    return code ^ np.where(shifted < 0, 0x7F, 0xFF)


def _decode_mu(codes: np.ndarray) -> np.ndarray:
    code = codes ^ 0xFF
    segment = code >> 4 & 7
    magnitude = ((2 * (code & 0xF) + MU_BIAS) << segment) - MU_BIAS
    return np.where(code & 0x80, -magnitude, magnitude) * 4


def _encode_a(samples: np.ndarray) -> np.ndarray:
    shifted = samples >> 3
    magnitude = np.where(shifted < 0, ~shifted, shifted)
    segment = np.searchsorted(_A_SEGMENT_ENDS, magnitude)
    code = segment << 4 | (magnitude >> np.maximum(segment, 1)) & 0xF
    return code ^ np.where(shifted < 0, 0x55, 0xD5)


def _decode_a(codes: np.ndarray) -> np.ndarray:
    code = codes ^ 0x55
    segment = code >> 4 & 7
    # The middle of a step; from segment 1 on the leading bit is implied.
    magnitude = ((code & 0xF) << 4) + np.where(segment > 0, 0x108, 8) << np.maximum(segment - 1, 0)
    return np.where(code & 0x80, magnitude, -magnitude)
