"""Kaldi's log-mel filter bank in numpy: the features of ``svtoolkit.features.fbank``, without torch."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.features.kaldi_filters import (
    INT16_FULL_SCALE,
    LOG_FLOOR,
    FilterBankOptions,
    mel_filters,
    window_function,
)
from svtoolkit.models.front_ends import KALDI

BLOCK_FRAMES = 1024
"""Frames that are transformed at a time: some 20 MB."""


class NumpyFilterBank:
    """(samples,) -> (frames, bins) float32, with the mean over time in it.

    Raises:
        UserError: features that are not Kaldi's, a value out of range.
    """

    def __init__(self, config: FeaturesConfig) -> None:
        if config.backend not in KALDI:
            raise UserError(
                f"its features are {config.backend}, which are computed inside the graph alone; export the model with "
                "`svt export input=waveform`"
            )
        names = {each.name for each in fields(FilterBankOptions)} - {"warp"}
        try:
            self.options = FilterBankOptions(**{name: getattr(config, name) for name in names})
        except ValueError as error:
            raise UserError(f"features cannot be computed: {error}") from error
        window = window_function(self.options.window, self.options.window_samples)
        self._window = window * (INT16_FULL_SCALE if self.options.int16_scale else 1.0)
        self._filters = mel_filters(self.options)

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """float32 (samples,) in [-1, 1], a window or longer -> float32 (frames, bins)."""
        windows = np.lib.stride_tricks.sliding_window_view(samples, self.options.window_samples)
        frames = windows[:: self.options.shift_samples]
        parts = [self._log_mel(frames[start : start + BLOCK_FRAMES]) for start in range(0, len(frames), BLOCK_FRAMES)]
        return np.concatenate(parts)

    def _log_mel(self, frames: np.ndarray) -> np.ndarray:
        """In float64, in which numpy 1 transforms whatever it is given."""
        centred = frames - frames.mean(axis=1, keepdims=True, dtype=np.float64)
        emphasised = centred.copy()
        emphasised[:, 1:] -= self.options.preemphasis * centred[:, :-1]
        emphasised[:, :1] *= 1.0 - self.options.preemphasis  # the first sample stands for the one before it
        spectrum = np.fft.rfft(emphasised * self._window, n=self.options.fft_samples)
        energies = (np.square(spectrum.real) + np.square(spectrum.imag)) @ self._filters
        return np.log(np.maximum(energies, LOG_FLOOR)).astype(np.float32)
