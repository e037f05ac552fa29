"""A telephone line: the band from 300 to 3400 Hz, sampled at 8 kHz in the 8-bit codes of ITU-T G.711."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import torch
from scipy.signal import firwin, kaiserord
from torch import Tensor

from svtoolkit.augmentation.change import Change, Parameters
from svtoolkit.augmentation.convolution import convolve
from svtoolkit.augmentation.g711 import LAWS, round_trip
from svtoolkit.errors import UserError

LINE_RATE = 8000
LOW_EDGE, HIGH_EDGE = 300.0, 3400.0
TRANSITION = 200.0
"""Hz between the edge of the pass band and the stop band, on both sides."""
ATTENUATION = 66.0
"""dB of either edge in its stop band; together they keep 60, as their ripples may add up."""


class Telephone(Change):
    """Speech as it comes out of a telephone line, neither delayed nor at another level.

    It is band-limited, decimated to 8 kHz, rounded to 16 bits (what is beyond full scale is clipped), coded by either
    law, decoded and interpolated by the same filter. Samples that are not finite stay so.

    Args:
        probability: share of the crops that are augmented which go through a line.
        sample_rate: of the crops, in Hz.

    Raises:
        UserError: a rate that is no multiple of the line's, which would not decimate without interpolation.
    """

    def __init__(self, probability: float, sample_rate: int) -> None:
        if sample_rate < LINE_RATE or sample_rate % LINE_RATE:
            raise UserError(
                f"augment.telephone_probability is {probability}, but features.sample_rate is {sample_rate} Hz, "
                f"expected a multiple of {LINE_RATE} Hz; set augment.telephone_probability=0"
            )
        self.probability = probability
        self.sample_rate = sample_rate

    def draw(self, generator: np.random.Generator) -> Parameters | None:
        return {"law": int(generator.integers(len(LAWS)))} if generator.random() < self.probability else None

    def apply(self, waveforms: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        factor = self.sample_rate // LINE_RATE
        kernel = _kernel(self.sample_rate, waveforms.device)
        delay = kernel.shape[-1] // 2
        narrow = convolve(waveforms, kernel, delay)[:, ::factor]
        received = torch.zeros_like(waveforms)
        # The zeros in between take (factor - 1) / factor of the level.
        received[:, ::factor] = _transmit(narrow, parameters["law"]) * factor
        return convolve(received, kernel, delay)


def band_filter(sample_rate: int) -> np.ndarray:
    """Linear-phase band-pass, a Kaiser-windowed sinc: float64, (taps,), symmetric, of odd length.

    Design as in Oppenheim and Schafer, Discrete-Time Signal Processing, section 7.6: 60 dB down from 100 Hz on
    downwards and from 3600 Hz on upwards, within 0.01 dB in between the edges.
    """
    taps, beta = kaiserord(ATTENUATION, 2 * TRANSITION / sample_rate)
    cutoffs = [LOW_EDGE - TRANSITION / 2, HIGH_EDGE + TRANSITION / 2]
    return firwin(taps | 1, cutoffs, window=("kaiser", beta), pass_zero=False, scale=False, fs=sample_rate)


def _transmit(narrow: Tensor, laws: Tensor) -> Tensor:
    """Code and decode every row, (batch, samples), by its law, a place in LAWS, (batch,)."""
    finite = narrow.isfinite()
    index = torch.where(finite, narrow * 32768, 0.0).round_().clamp_(-32768, 32767).long() + 32768
    return torch.where(finite, _tables(narrow.device)[laws.unsqueeze(1), index], narrow)


@lru_cache(maxsize=16)
def _kernel(sample_rate: int, device: torch.device) -> Tensor:
    return torch.tensor(band_filter(sample_rate), dtype=torch.float32).to(device).unsqueeze(0)


@lru_cache(maxsize=16)
def _tables(device: torch.device) -> Tensor:
    """What becomes of every 16-bit sample, by law: (laws, 65536)."""
    return torch.from_numpy(np.stack([round_trip(law) for law in LAWS])).to(device)
