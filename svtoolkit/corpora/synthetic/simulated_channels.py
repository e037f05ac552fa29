"""Two simulated channels between a mouth and a file: a wide, clean one and a narrow, reverberant, noisy one."""

from __future__ import annotations

import random

import numpy as np

CHANNELS = ("wide", "narrow")


def transmit(speech: np.ndarray, sample_rate: int, channel: str, rng: random.Random) -> np.ndarray:
    """Send speech through one of CHANNELS, at a random level: float32, (samples,), as long as ``speech``."""
    noise = np.random.default_rng(rng.getrandbits(64))
    if channel == "narrow":
        speech = reverberate(speech, sample_rate, noise, seconds=rng.uniform(0.1, 0.3), ratio_db=rng.uniform(2, 10))
        band, snr_db, tilt_db = (rng.uniform(200, 350), rng.uniform(3000, 3700)), rng.uniform(10, 20), 0.0
    else:
        band, snr_db, tilt_db = (50.0, 0.49 * sample_rate), rng.uniform(25, 40), rng.uniform(-2, 2)
    scale = np.sqrt(np.mean(speech**2)) * 10 ** (-snr_db / 20)
    received = speech + scale * noise.standard_normal(len(speech))
    received = filter_band(received, sample_rate, band, tilt_db)
    # The recorder's own noise, 50 dB down: no band is ever digitally silent.
    received += 10 ** (-50 / 20) * np.sqrt(np.mean(received**2)) * noise.standard_normal(len(received))
    gain = 10 ** (rng.uniform(-28, -20) / 20) / np.sqrt(np.mean(received**2))
    return (received * min(gain, 0.9 / np.abs(received).max())).astype(np.float32)


def reverberate(
    speech: np.ndarray, sample_rate: int, noise: np.random.Generator, *, seconds: float, ratio_db: float
) -> np.ndarray:
    """Convolve with an impulse response of exponentially decaying noise.

    Args:
        speech: shape (samples,).
        sample_rate: in Hz.
        noise: gives the echoes.
        seconds: reverberation time, in which the echoes decay by 60 dB.
        ratio_db: energy of the direct sound over that of the echoes.
    """
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    response = noise.standard_normal(len(time)) * 10 ** (-3 * time / seconds)
    response *= 10 ** (-ratio_db / 20) / np.sqrt(np.sum(response**2))
    response[0] = 1.0
    size = _fast_size(len(speech) + len(response))
    return np.fft.irfft(np.fft.rfft(speech, size) * np.fft.rfft(response, size), size)[: len(speech)]


def filter_band(samples: np.ndarray, sample_rate: int, band: tuple[float, float], tilt_db: float) -> np.ndarray:
    """Zero-phase band-pass, fourth-order Butterworth magnitude at both edges (Hz); tilt in dB an octave from 1 kHz."""
    size = _fast_size(len(samples) + sample_rate // 10)  # the response would otherwise wrap around
    hertz = np.maximum(np.fft.rfftfreq(size, 1 / sample_rate), 1.0)
    low, high = band
    magnitude = 1 / np.sqrt((1 + (low / hertz) ** 8) * (1 + (hertz / high) ** 8))
    magnitude *= 10 ** (tilt_db * np.log2(hertz / 1000) / 20)
    return np.fft.irfft(np.fft.rfft(samples, size) * magnitude, size)[: len(samples)]


def _fast_size(samples: int) -> int:
    """The next power of two: transforms of lengths with large prime factors are many times slower.

    Not scipy.fft.next_fast_len: ``filter_band`` would sample its filter at other frequencies, and change the corpus.
    """
    return 1 << (samples - 1).bit_length()
