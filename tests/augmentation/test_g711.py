"""Codes against the tables of ITU-T G.711 and against Python's audioop, where there is one (before Python 3.13)."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

from svtoolkit.augmentation.g711 import LAWS, decode, encode, round_trip

EVERY_SAMPLE = np.arange(-32768, 32768).astype(np.int16)
EVERY_CODE = np.arange(256).astype(np.uint8)


def audioop():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return importlib.import_module("audioop")
        except ImportError:
            pytest.skip("audioop was removed from Python 3.13; the tables of the recommendation are tested everywhere")


@pytest.mark.parametrize("law", LAWS)
def test_codes_are_those_of_audioop(law):
    module = audioop()
    name = {"mu": "ulaw", "a": "alaw"}[law]
    codes = getattr(module, f"lin2{name}")(EVERY_SAMPLE.tobytes(), 2)
    np.testing.assert_array_equal(encode(EVERY_SAMPLE, law), np.frombuffer(codes, dtype=np.uint8))
    samples = getattr(module, f"{name}2lin")(EVERY_CODE.tobytes(), 2)
    np.testing.assert_array_equal(decode(EVERY_CODE, law), np.frombuffer(samples, dtype=np.int16))


def decision_values(law: str) -> np.ndarray:
    """x_1, x_2, ... of positive input, columns 1 to 4 of tables 1a (A-law, of 4096) and 2a (mu-law, of 8159)."""
    if law == "a":
        segments = [(32, 0, 2)] + [(16, 64 << number, 4 << number) for number in range(6)]
    else:
        segments = [(1, 0, 1), (15, 1, 2)] + [(16, (64 << number) - 33, 4 << number) for number in range(7)]
    ends = [begin + step * np.arange(1, count + 1) for count, begin, step in segments]
    return np.concatenate(ends)[:-1]  # x_128 is the end of the last interval


@pytest.mark.parametrize(("law", "largest", "units"), [("mu", 8159, 14), ("a", 4096, 13)])
def test_positive_codes_follow_the_decision_values(law, largest, units):
    decisions = decision_values(law)
    assert len(decisions) == 127
    assert {"mu": 7903, "a": 3968}[law] == decisions[-1]  # x_127 of the tables
    samples = np.arange(0, min(largest, 1 << (units - 1)))
    interval = np.searchsorted(decisions, samples, side="right")
    inversion = {"mu": 0xFF, "a": 0xD5}[law]  # all bits; every even one, of a sign bit that is 1
    scale = 1 << (16 - units)
    np.testing.assert_array_equal(encode((samples * scale).astype(np.int16), law), interval ^ inversion)
    # The quantised value is the middle of its interval, column 8; 0 for the first of mu-law.
    edges = np.concatenate([[0], decisions, [largest]])
    middle = (edges[:-1] + edges[1:]) / 2
    if law == "mu":
        middle[0] = 0
        middle[-1] = 8031
    received = decode((np.arange(128) ^ inversion).astype(np.uint8), law)
    np.testing.assert_array_equal(received / scale, middle)


@pytest.mark.parametrize("law", LAWS)
def test_negative_samples_mirror_positive_ones(law):
    positive = np.arange(128, 32768, 8).astype(np.int16)
    # In two's complement the mirror of the 13 bits n is ~n; sign and magnitude are what mu-law begins with.
    mirrored = -positive if law == "mu" else ~positive
    np.testing.assert_array_equal(encode(positive, law) ^ 0x80, encode(mirrored, law))
    np.testing.assert_array_equal(decode(EVERY_CODE, law), -decode(EVERY_CODE ^ 0x80, law))


@pytest.mark.parametrize("law", LAWS)
def test_the_noise_of_the_codes_follows_the_level(law):
    """About 37 dB below Gaussian noise of any usual level: eight bits of logarithmic steps."""
    table = round_trip(law)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table[32768 + 1000], decode(encode(np.array([1000], np.int16), law), law)[0] / 32768)
    rng = np.random.default_rng(0)
    for level_db in (-40, -30, -20, -12):
        samples = np.clip(10 ** (level_db / 20) * 32768 * rng.standard_normal(20_000), -32768, 32767).round()
        error = table[samples.astype(int) + 32768] - samples / 32768
        ratio = 10 * np.log10(np.mean((samples / 32768) ** 2) / np.mean(error**2))
        assert 34 < ratio < 38.5
