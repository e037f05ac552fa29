"""Mel spectrograms of other toolkits, written out a second time in float64: a frame, a filter, a formula at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def _mel(hertz: float) -> float:
    return 2595.0 * math.log10(1.0 + hertz / 700.0)


def _hertz(mel: float) -> float:
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def _slaney_hertz(mel: float) -> float:
    return mel * 200.0 / 3.0 if mel < 15.0 else 1000.0 * 6.4 ** ((mel - 15.0) / 27.0)


def _slaney_edges(low: float, high: float, bins: int) -> list[float]:
    def mel(hertz: float) -> float:
        return hertz * 3.0 / 200.0 if hertz < 1000.0 else 15.0 + 27.0 * math.log(hertz / 1000.0) / math.log(6.4)

    return [_slaney_hertz(value) for value in np.linspace(mel(low), mel(high), bins + 2)]


def _htk_edges(low: float, high: float, bins: int) -> list[float]:
    return [_hertz(value) for value in np.linspace(_mel(low), _mel(high), bins + 2)]


def _triangle(at: float, left: float, centre: float, right: float) -> float:
    if left < at <= centre:
        return (at - left) / (centre - left)
    return (right - at) / (right - centre) if centre < at < right else 0.0


def _filters(points: list[float], edges: list[float], height: Callable[[int], float] = lambda _: 1.0) -> np.ndarray:
    return np.array([[height(i) * _triangle(at, *edges[i : i + 3]) for i in range(len(edges) - 2)] for at in points])


def _spectra(waveform: np.ndarray, window: np.ndarray, fft: int, padding: int, mode: str) -> np.ndarray:
    """Power of every window of 400 samples that fits, each 160 samples after the one before."""
    padded = np.pad(waveform, padding, mode)
    begins = range(0, len(padded) - 400 + 1, 160)
    return np.stack([np.abs(np.fft.fft(padded[b : b + 400] * window, fft)[: fft // 2 + 1]) ** 2 for b in begins])


def _hamming(period: int) -> np.ndarray:
    return np.array([0.54 - 0.46 * math.cos(2 * math.pi * n / period) for n in range(400)])


def _hann(period: int) -> np.ndarray:
    return np.array([math.sin(math.pi * n / period) ** 2 for n in range(400)])


def _emphasised(waveform: np.ndarray, first: float) -> np.ndarray:
    return waveform - 0.97 * np.concatenate(([first], waveform[:-1]))


def speechbrain(waveform: np.ndarray, bins: int) -> np.ndarray:
    edges = _htk_edges(0.0, 8000.0, bins)
    points = [40.0 * k for k in range(201)]
    table = np.array(
        [[max(0.0, 1.0 - abs(at - edges[i + 1]) / (edges[i + 1] - edges[i])) for i in range(bins)] for at in points]
    )
    levels = 10.0 * np.log10(np.maximum(_spectra(waveform, _hamming(400), 400, 200, "constant") @ table, 1e-10))
    levels = np.maximum(levels, levels.max() - 80.0)
    return levels - levels.mean(axis=0)


def nemo(waveform: np.ndarray, bins: int) -> np.ndarray:
    edges = _slaney_edges(0.0, 8000.0, bins)
    table = _filters([31.25 * k for k in range(257)], edges, lambda i: 2.0 / (edges[i + 2] - edges[i]))
    power = _spectra(_emphasised(waveform, 0.0), _hann(399), 512, 200, "constant")[: len(waveform) // 160]
    logs = np.log(power @ table + 2.0**-24)
    return (logs - logs.mean(axis=0)) / (logs.std(axis=0, ddof=1) + 1e-5)


def clova(waveform: np.ndarray, bins: int) -> np.ndarray:
    logs = _torchaudio(waveform, bins, 0.0, 8000.0)
    return (logs - logs.mean(axis=0)) / np.sqrt(logs.var(axis=0) + 1e-5)


def redim_pt(waveform: np.ndarray, bins: int, norm_signal: bool = False) -> np.ndarray:
    if norm_signal:
        waveform = (waveform - waveform.mean()) / (waveform.std() + 1e-6)
    logs = _torchaudio(waveform, bins, 20.0, 7600.0)
    return logs - logs.mean(axis=0)


def _torchaudio(waveform: np.ndarray, bins: int, low: float, high: float) -> np.ndarray:
    table = _filters([31.25 * k for k in range(257)], _htk_edges(low, high, bins))
    power = _spectra(_emphasised(waveform, waveform[1]), _hamming(400), 512, 200, "reflect")
    return np.log(power @ table + 1e-6)


def redim_tf(waveform: np.ndarray, bins: int, norm_signal: bool = False) -> np.ndarray:
    if norm_signal:
        waveform = (waveform - waveform.mean()) / (waveform.std() + 1e-8)
    points = [_mel(8000.0 * k / 255.0) for k in range(256)]
    table = _filters(points, list(np.linspace(_mel(20.0), _mel(7600.0), bins + 2)))
    table[0] = 0.0
    power = _spectra(_emphasised(waveform, waveform[1]), _hamming(399), 512, 80, "constant")[:, :256]
    logs = np.log(np.clip(np.clip(power, 1e-8, 1e8) @ table, 1e-8, 1e8) + 1e-8)
    return logs - logs.mean(axis=0)


def res40(waveform: np.ndarray, bins: int) -> np.ndarray:
    edges = _slaney_edges(0.0, 8000.0, bins)
    table = _filters([40.0 * k for k in range(201)], edges, lambda i: 2.0 / (edges[i + 2] - edges[i]))
    return _spectra(waveform, _hann(400), 400, 200, "constant") @ table
