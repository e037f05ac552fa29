"""A released model that embeds and compares recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.audio.files import read_audio
from svtoolkit.checkpoints.released import ModelDescription, read_released
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.scoring.extraction import EmbeddingExtractor


class SpeakerModel:
    """What ``svtoolkit.load_model`` returns.

    Attributes:
        description: content of model.yaml.
        extractor: network and front end on their device.
    """

    def __init__(self, extractor: EmbeddingExtractor, description: ModelDescription) -> None:
        self.extractor = extractor
        self.description = description

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", **extraction: Any) -> SpeakerModel:
        """Load a folder with model.safetensors and model.yaml; nothing in it is executed.

        Args:
            folder: as written by ``svt average``.
            device: auto, cpu or cuda.
            extraction: precision, channel, resample, batch_seconds, batch_size, num_workers of
                ``EmbeddingExtractor``.

        Raises:
            UserError: files that are missing, damaged or do not fit each other.
        """
        network, description = read_released(folder)
        try:
            front_end = front_end_of(description.features)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from error
        return cls(EmbeddingExtractor(network, front_end, choose_device(device), **extraction), description)

    @property
    def sample_rate(self) -> int:
        """Hz."""
        return self.description.features.sample_rate

    @property
    def threshold(self) -> float | None:
        """Cosine at and above which two utterances are accepted as one speaker; None until `svt evaluate` stores it."""
        return self.description.verification.get("threshold")

    def embed(self, audio: str | Path | np.ndarray) -> np.ndarray:
        """Embedding of a whole file, or of samples in [-1, 1] at ``sample_rate``: (embedding_dim,) float32.

        Raises:
            UserError: unreadable file, another rate, several channels, shorter than one analysis window, samples that
                are integers or give no finite embedding.
        """
        if isinstance(audio, np.ndarray):
            if not np.issubdtype(audio.dtype, np.floating):
                raise UserError(
                    f"found samples of type {audio.dtype}, expected floating-point numbers in [-1, 1]; "
                    "divide 16-bit samples by 32768"
                )
            return self.extractor.embed_waveform(np.ascontiguousarray(audio, dtype=np.float32))
        samples = read_audio(
            audio,
            sample_rate=self.sample_rate,
            channel=self.extractor.channel,
            resample=self.extractor.resample,
        )
        try:
            return self.extractor.embed_waveform(samples)
        except UserError as error:
            raise UserError(f"{audio}: {error}") from error

    def similarity(self, first: str | Path | np.ndarray, second: str | Path | np.ndarray) -> float:
        """Cosine of the embeddings of two files or waveforms, in [-1, 1]."""
        a, b = self.embed(first).astype(np.float64), self.embed(second).astype(np.float64)
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
