"""Voices that are heard as speech: a sentence of a synthesiser, at a speed, and so a pitch, of each speaker's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import soxr

SENTENCE, RATE = Path(__file__).with_name("sentence.flac"), 16000
"""By espeak-ng, without a pause: "Seven sailors sat on a shore, and all of them were waiting for a better wind."."""


def spoken(speaker: int, utterance: int, seconds: float, rate: int = RATE) -> np.ndarray:
    """A stretch of the sentence, which begins anew where it ends, in faint noise: float32, (seconds * rate,)."""
    sentence = _sentence_of(speaker, rate)
    samples = round(seconds * rate)
    rng = np.random.default_rng([29, speaker, utterance])
    begin = rng.integers(len(sentence))
    stretch = np.take(sentence, np.arange(begin, begin + samples), mode="wrap")
    return (stretch + 0.001 * rng.standard_normal(samples)).astype(np.float32)


@cache
def _sentence_of(speaker: int, rate: int) -> np.ndarray:
    samples, _ = soundfile.read(SENTENCE)
    return soxr.resample(samples, RATE, rate * (0.9 + 0.03 * (speaker % 9)))
