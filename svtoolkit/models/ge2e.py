"""The LSTM of Wan et al., "Generalized end-to-end loss for speaker verification" (ICASSP 2018), as Resemblyzer has it.

Its embedding is what the last frame leaves behind, which a long recording outgrows: an utterance is embedded by short
stretches, whose embeddings are averaged (``Partials``; ``svtoolkit.scoring.forward`` does it).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from svtoolkit.models.speaker_network import SpeakerNetwork


@dataclass(frozen=True)
class Partials:
    """Stretches of an utterance that a network embeds one by one (resemblyzer/voice_encoder.py).

    Attributes:
        frames: of a stretch.
        step: frames from one to the next; 77 of 10 ms are 1.3 a second.
        coverage: share of the last one that has to be sound, unless it is the only one.
    """

    frames: int = 160
    step: int = 77
    coverage: float = 0.75

    def starts(self, samples: int, shift: int) -> list[int]:
        """First frames of the stretches of a waveform, whose frames are ``shift`` samples from each other."""
        frames = math.ceil((samples + 1) / shift)
        starts = list(range(0, max(1, frames - self.frames + self.step + 1), self.step))
        covered = (samples - starts[-1] * shift) / (self.frames * shift)
        return starts[:-1] if covered < self.coverage and len(starts) > 1 else starts


class GE2ENetwork(SpeakerNetwork):
    """(batch, frames, bins) -> (batch, embedding_dim), of length 1 and without negative values.

    Args:
        hidden: units of each layer.
        layers: of the LSTM.
    """

    maskable = False
    partials = Partials()

    def __init__(self, *, num_bins: int, embedding_dim: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.layers = layers + 1
        self.lstm = nn.LSTM(num_bins, hidden, layers, batch_first=True)
        self.embedding = nn.Linear(hidden, embedding_dim)

    def forward(self, frames: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(frames)
        return functional.normalize(functional.relu(self.embedding(hidden[-1])))
