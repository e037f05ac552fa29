"""Embeddings without a network: mean and standard deviation over time of MFCCs, for fusion and as a baseline.

They tell voices by their average spectrum, and microphones and rooms as well. Scores of them want whitening within
speakers (``svt backend kind=wccn whiten=true``). The MFCCs are Kaldi's: 24 of 40 mel bands from 20 Hz to half the
sample rate, no liftering, no dither, C0 in place of the energy.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.fft import dct
from torch import Tensor, nn

from svtoolkit.config import FeaturesConfig
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.scoring.extraction import EmbeddingExtractor

CEPSTRA = 24
MEL_BANDS = 40


class MfccStatistics(nn.Module):
    """Log-mel features (batch, frames, bands) -> means, then deviations, of the first cepstra (batch, 2 * cepstra).

    It has no weights. The cosine transform is orthonormal, and deviations are divided by the number of frames.
    """

    transform: Tensor

    def __init__(self, bands: int = MEL_BANDS, cepstra: int = CEPSTRA) -> None:
        super().__init__()
        self.embedding_dim = 2 * cepstra
        matrix = dct(np.eye(bands), norm="ortho", axis=1)[:, :cepstra]
        self.register_buffer("transform", torch.tensor(matrix, dtype=torch.float32), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        frames = features @ self.transform
        deviation, mean = torch.std_mean(frames, dim=1, correction=0)
        return torch.cat([mean, deviation], dim=1)


def statistics_features(sample_rate: int = 16000) -> FeaturesConfig:
    """The filter bank that they are computed from."""
    return FeaturesConfig(sample_rate=sample_rate, num_bins=MEL_BANDS, window="povey", remove_mean=False)


def statistics_extractor(
    sample_rate: int = 16000, *, channel: int | None = None, resample: bool = False, num_workers: int = 1
) -> EmbeddingExtractor:
    """What embeds with them, on the CPU, every utterance by itself; the arguments are those of ``read_audio``."""
    return EmbeddingExtractor(
        MfccStatistics(),
        front_end_of(statistics_features(sample_rate)),
        torch.device("cpu"),
        channel=channel,
        resample=resample,
        batch_size=1,
        num_workers=num_workers,
    )
