"""How much of a recording is voice: enough to refuse what is no speech at all.

Two measures have to agree, and the lesser of them counts.

1. A network that was trained on many languages and noises (``voice_network``) gives the probability of speech every
   32 ms; ``SPEECH`` and above is voice. It tells music, animals and machines from speech. It hears recordings that are
   made equally loud, so that quiet speech is speech; and it goes on hearing a voice for a moment when it has ended.
2. Speech rises and falls with every syllable, three to eight times a second; silence, white noise, a fan and the hum of
   the mains do not. So a stretch of 10 ms counts where its level stands ``RISE_DB`` above the lowest of the half second
   before it, and above the lowest of the half second after it: a step from quiet to loud noise rises and does not fall.
   What is shorter than ``SHORTEST`` is a click. The level is the mean in dB over five octaves, so that a voice is heard
   in noise that covers a part of its spectrum, and the level of noise of any colour stays steady. Below ``QUIET_DB``,
   where 16-bit files have their rounding noise alone, nothing counts.

A song is sung by a voice, and a parrot talks: neither is told from speech, nor is a loudspeaker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import soxr

from svtoolkit.audio.voice_network import RATE, STRETCH, speech_probabilities

SPEECH = 0.5
"""Probability at and above which the network hears speech, as its authors use it."""

LOUD_DB = -26.0
"""Mean level, against full scale, that the loudest tenth of a recording begins with when the network hears it."""

WINDOW, HOP = 0.050, 0.010
"""Seconds over which a level is taken, and between two levels."""

OCTAVES = (150.0, 300.0, 600.0, 1200.0, 2400.0, 4000.0)
"""Edges of the bands in Hz: above the hum of the mains, below hiss."""

RISE_DB = 3.0
QUIET_DB = -90.0
"""Of all bands together, against a full-scale sine."""

EMPTY_DB = -110.0
"""A band is no quieter than that: below, a rise would be one of nothing."""

AROUND = 0.5
"""Seconds before and after in which the level has to be lower."""

SHORTEST = 0.06
"""Seconds in a row that a syllable has at least; a click has ``WINDOW``."""

FRAME = 400
"""Samples whose mean power is one level of the loudness."""

BLOCK = 4096
"""Windows transformed at a time, which take some 30 MB."""

MIN_VOICE = 0.3
"""Seconds of voice that a recording of speech has at least."""


@dataclass(frozen=True)
class VoiceActivity:
    """What was heard.

    Attributes:
        voice: seconds of voice.
        total: seconds of the recording.
        silent: nothing in it is louder than the rounding noise of 16-bit files.
    """

    voice: float
    total: float
    silent: bool

    def why_no_speech(self, min_voice: float = MIN_VOICE) -> str | None:
        """Why the recording is refused as speech; None where it has ``min_voice`` seconds of voice."""
        if self.voice >= min_voice:
            return None
        cause = "it is silent" if self.silent else "the rest is silence, noise or music"
        return (
            f"{self.voice:.2f} s of voice in {self.total:.2f} s, expected {min_voice:g} s or more ({cause}); "
            "record speech, nearer to the microphone or for longer"
        )


def measure_voice(samples: np.ndarray, sample_rate: int) -> VoiceActivity:
    """Find out how much voice there is.

    Args:
        samples: in [-1, 1], floating point, shape (samples,); NaN and infinity count as 0.
        sample_rate: in Hz.
    """
    signal = np.nan_to_num(samples.astype(np.float64), posinf=0.0, neginf=0.0)
    bands = band_powers(signal, sample_rate)
    loud = 10 * np.log10(bands.sum(axis=1) + 1e-20) > QUIET_DB
    risen = _risen(bands, loud)
    voice = min(risen, _heard_by_network(signal, sample_rate)) if risen > 0 else 0.0
    return VoiceActivity(voice, len(samples) / sample_rate, not loud.any())


def _risen(bands: np.ndarray, loud: np.ndarray) -> float:
    """Seconds in which the level stands above what is around it; what a window adds to each row is taken off."""
    levels = 10 * np.log10(np.maximum(bands, 10 ** (EMPTY_DB / 10))).mean(axis=1)
    heard = np.where(loud, levels, np.inf)  # digital silence is no background to rise from
    floor = np.maximum(_lowest_before(heard), _lowest_before(heard[::-1])[::-1])
    rows = _lengths_of_rows(loud & (levels >= floor + RISE_DB))
    syllables = rows[rows >= round(SHORTEST / HOP)] - round(WINDOW / HOP - 1)
    return int(syllables.sum()) * HOP


def _heard_by_network(signal: np.ndarray, sample_rate: int) -> float:
    """Seconds in which the network hears speech."""
    even = signal - signal.mean()
    powers = np.square(even[: len(even) // FRAME * FRAME]).reshape(-1, FRAME).mean(axis=1)
    loudness = np.sqrt(_quantile(powers, 0.9)) if len(powers) else 0.0
    if loudness == 0:
        return 0.0
    equally_loud = (even * (10 ** (LOUD_DB / 20) / loudness)).astype(np.float32)
    if sample_rate != RATE:
        equally_loud = soxr.resample(equally_loud, sample_rate, RATE)
    return int((speech_probabilities(equally_loud) >= SPEECH).sum()) * STRETCH / RATE


def _quantile(values: np.ndarray, share: float) -> float:
    """As ``np.quantile``, which imports NumPy's masked arrays first."""
    whole, part = divmod(share * (len(values) - 1), 1)
    ordered = np.sort(values)
    return float(ordered[int(whole)] * (1 - part) + ordered[min(int(whole) + 1, len(values) - 1)] * part)


def band_powers(signal: np.ndarray, sample_rate: int) -> np.ndarray:
    """Power in each octave below half the rate, every 10 ms: (samples,) -> (stretches, bands) float64.

    A full-scale sine has a power of 1 in its band.
    """
    window, hop = round(WINDOW * sample_rate), round(HOP * sample_rate)
    frequencies = np.fft.rfftfreq(window, 1 / sample_rate)
    edges = np.array(sorted(set(np.searchsorted(frequencies, OCTAVES).tolist())))
    if len(signal) < window:
        return np.empty((0, len(edges) - 1))
    taper = np.hanning(window)
    windows = np.lib.stride_tricks.sliding_window_view(signal, window)[::hop]
    powers = []
    for start in range(0, len(windows), BLOCK):
        spectrum = np.fft.rfft(windows[start : start + BLOCK] * taper)
        total = np.cumsum(np.square(np.abs(spectrum)), axis=1)[:, edges - 1]
        powers.append(np.diff(total, axis=1) * 4 / (window * np.square(taper).sum()))
    return np.concatenate(powers)


def _lowest_before(levels: np.ndarray) -> np.ndarray:
    """The lowest of a level and of those of the last ``AROUND`` seconds."""
    width = round(AROUND / HOP) + 1
    padded = np.concatenate((np.full(width, np.inf), levels))
    return np.lib.stride_tricks.sliding_window_view(padded, width)[1:].min(axis=1)


def _lengths_of_rows(flags: np.ndarray) -> np.ndarray:
    """How many there are in each row of flags that are set."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
    return edges[1::2] - edges[::2]
