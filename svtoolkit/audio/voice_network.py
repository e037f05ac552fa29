"""The probability of speech every 32 ms: the network of Silero VAD 6.2 in NumPy, its weights beside it.

The network hears 36 ms at a time: a spectrum of 16 ms every 8 ms, four convolutions over it, and an LSTM from each
stretch to the next. Weights and architecture are those of https://github.com/snakers4/silero-vad, (c) 2020-present
Silero Team, MIT licence (silero_vad.LICENSE); scripts/voice_weights.py takes them out of its ONNX file. NumPy is
enough: all but the LSTM is done for many stretches at once.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

RATE = 16000
"""Hz, of the samples."""

STRETCH = 512
"""Samples that get one probability."""

CONTEXT = 64
"""Samples before a stretch that are heard with it, and of its end that are mirrored behind it."""

WINDOW, HOP = 256, 128
UNITS = 128
"""Of the LSTM."""

BLOCK = 1024
"""Stretches that go through the convolutions together, 33 s in some 10 MB."""

WEIGHTS = Path(__file__).with_name("silero_vad.npz")


def speech_probabilities(samples: np.ndarray) -> np.ndarray:
    """(samples,) in [-1, 1] at 16 kHz -> probability of speech in each begun stretch of 512, float32."""
    weights = _weights()
    stretches = -(-len(samples) // STRETCH)
    padded = np.zeros(CONTEXT + STRETCH * stretches, dtype=np.float32)
    padded[CONTEXT : CONTEXT + len(samples)] = samples
    heard = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + STRETCH)[::STRETCH] if stretches else padded[:0]
    memory = np.zeros((2, UNITS), dtype=np.float32)
    found = [np.empty(0, dtype=np.float32)]
    for begin in range(0, stretches, BLOCK):
        encoded = _encode(heard[begin : begin + BLOCK], weights)
        hidden = np.maximum(_lstm(encoded, memory, weights), 0)
        found.append(_sigmoid(hidden @ weights["output.weight"] + weights["output.bias"]))
    return np.concatenate(found)


@cache
def _weights() -> dict[str, np.ndarray]:
    """Float32, as they are multiplied: convolutions as (taps * channels, filters), the LSTM as (inputs, gates)."""
    with np.load(WEIGHTS) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}


def _encode(heard: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    """(stretches, samples) -> (stretches, UNITS)."""
    mirrored = np.pad(heard, ((0, 0), (0, CONTEXT)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(mirrored, WINDOW, axis=1)[:, ::HOP]
    taper = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
    found = np.abs(np.fft.rfft(windows * taper)).astype(np.float32)
    for number, stride in enumerate((1, 2, 2, 1)):
        padded = np.pad(found, ((0, 0), (1, 1), (0, 0)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::stride]
        flat = taps.reshape(*taps.shape[:2], -1)
        found = np.maximum(flat @ weights[f"encoder.{number}.weight"] + weights[f"encoder.{number}.bias"], 0)
    return found[:, 0]


def _lstm(inputs: np.ndarray, memory: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    """(stretches, UNITS) -> (stretches, UNITS); ``memory``, output and cell, goes on from block to block."""
    gates = inputs @ weights["lstm.input"] + weights["lstm.bias"]
    recurrent = weights["lstm.recurrent"]
    output, cell = memory
    hidden = np.empty_like(inputs)
    for position, gate in enumerate(gates):
        summed = gate + output @ recurrent
        opened = _sigmoid(summed[: 3 * UNITS])  # input, output and forget gates, in ONNX's order
        cell = opened[2 * UNITS :] * cell + opened[:UNITS] * np.tanh(summed[3 * UNITS :])
        output = opened[UNITS : 2 * UNITS] * np.tanh(cell)
        hidden[position] = output
    memory[0], memory[1] = output, cell
    return hidden


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * values)  # which does not overflow
