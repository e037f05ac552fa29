"""A released model that embeds and compares recordings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from svtoolkit.audio.voice_activity import MIN_VOICE, measure_voice
from svtoolkit.checkpoints.model_digest import model_digest
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.checkpoints.releases import read_release
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.scoring.audio_input import Audio, described, read_samples
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.pair import cosine, enrolment_vector
from svtoolkit.scoring.verification import StoredThreshold, Verification


class ModelSettings(Protocol):
    """What such a command is told of its model; as the arguments of ``SpeakerModel.load``."""

    model: str
    device: str
    channel: int | None
    resample: bool
    front_end: str | None


class SpeakerModel:
    """What ``svtoolkit.load_model`` returns.

    Attributes:
        description: content of model.yaml.
        extractor: network and front end on their device.
        stored: threshold, error rates and calibration of model.yaml.
    """

    def __init__(self, extractor: EmbeddingExtractor, description: ModelDescription, stored: StoredThreshold) -> None:
        self.extractor = extractor
        self.description = description
        self.stored = stored

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        precision: str = "fp32",
        channel: int | None = None,
        resample: bool = False,
        batch_seconds: float = 120.0,
        batch_size: int = 32,
        threads: int = 0,
        num_workers: int = 1,
        stored: bool = False,
        front_end: str | None = None,
    ) -> SpeakerModel:
        """Load a release, as ``load_model`` does.

        Args:
            folder, front_end: of ``svtoolkit.checkpoints.releases.read_release``.
            device: auto, cpu, cuda or mps.
            precision, batch_seconds, batch_size, threads, num_workers, stored: of ``EmbeddingExtractor``.
            channel: channel of multi-channel audio, counted from 0; None: such audio is refused.
            resample: convert audio of another rate instead of refusing it.

        Raises:
            UserError: files that are missing, damaged or do not fit each other.
        """
        network, description = read_release(folder, front_end=front_end)
        if precision != "fp32" and getattr(network, "only_float32", False):
            raise UserError(
                f"{folder}: precision is {precision!r}, but its network is an ONNX graph, which computes in the "
                "precision that it was exported with; leave precision out"
            )
        try:
            features = front_end_of(description.features)
            threshold = StoredThreshold.read(description.verification)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from error
        extractor = EmbeddingExtractor(
            network,
            features,
            choose_device(device),
            precision=precision,
            channel=channel,
            resample=resample,
            batch_seconds=batch_seconds,
            batch_size=batch_size,
            threads=threads,
            num_workers=num_workers,
            stored=stored,
        )
        return cls(extractor, description, threshold)

    @classmethod
    def of(cls, config: ModelSettings) -> SpeakerModel:
        """Load the model of a command that embeds single recordings, as ``load``."""
        return cls.load(
            config.model,
            device=config.device,
            channel=config.channel,
            resample=config.resample,
            front_end=config.front_end,
        )

    @property
    def sample_rate(self) -> int:
        """Hz."""
        return self.description.features.sample_rate

    @property
    def threshold(self) -> float | None:
        """Cosine at and above which two are accepted as one speaker; None until one is stored."""
        return self.stored.threshold

    @property
    def embedding_dim(self) -> int:
        return int(self.extractor.network.embedding_dim)  # type: ignore[arg-type]

    @property
    def digest(self) -> str:
        """SHA-256 of what its embeddings depend on."""
        return model_digest(self.extractor.network, self.description)

    @property
    def verification(self) -> Mapping[str, Any]:
        """What model.yaml says of its threshold and its scores."""
        return self.description.verification

    def __repr__(self) -> str:
        model = self.description.model
        parameters = sum(weights.numel() for weights in self.extractor.network.parameters())
        size = f"{parameters / 1e6:.2f} M parameters" if parameters else "size unknown"
        threshold = "no threshold" if self.threshold is None else f"threshold {self.threshold:.4f}"
        point = f" ({self.stored.operating_point})" if self.stored.operating_point else ""
        return (
            f"<SpeakerModel {model['name']}: {size}, embeddings of "
            f"{model.get('embedding_dim')}, {self.sample_rate} Hz, {self.extractor.device}, {threshold}{point}>"
        )

    def embed(
        self, audio: Audio | list[Audio], *, sample_rate: int | None = None, min_voice: float = 0.0
    ) -> npt.NDArray[np.float32]:
        """Embedding of a whole recording, (embedding_dim,) float32; of a list, (recordings, embedding_dim).

        Args:
            audio: a path; a file object; samples in [-1, 1] of an array or a tensor; samples with their rate in Hz, as
                ``soundfile.read`` and ``torchaudio.load`` return them; or a list of these.
            sample_rate: Hz of samples that come without their rate; None: that of the model.
            min_voice: seconds of voice that each recording must have; 0: not checked.

        Raises:
            UserError: unreadable file, another rate, several channels, shorter than one analysis window, samples that
                are integers or give no finite embedding, less voice than ``min_voice``.
        """
        if isinstance(audio, list):
            if not audio:
                raise UserError("found an empty list, expected one recording or more")
            return np.stack([self.embed(each, sample_rate=sample_rate, min_voice=min_voice) for each in audio])
        samples = read_samples(
            audio,
            sample_rate=self.sample_rate,
            given_rate=sample_rate,
            channel=self.extractor.channel,
            resample=self.extractor.resample,
        )
        try:
            embedding = self.extractor.embed_waveform(samples)
            reason = measure_voice(samples, self.sample_rate).why_no_speech(min_voice) if min_voice > 0 else None
            if reason is not None:
                raise UserError(reason)
        except UserError as error:
            raise UserError(f"{described(audio)}{error}") from error
        return embedding

    def similarity(self, first: Audio, second: Audio) -> float:
        """Cosine of the embeddings of two recordings, in [-1, 1], whatever they hold."""
        return cosine(self.embed(first), self.embed(second))

    def verify(
        self,
        enrol: Audio | list[Audio],
        test: Audio,
        *,
        threshold: float | None = None,
        sample_rate: int | None = None,
        min_voice: float = MIN_VOICE,
    ) -> Verification:
        """Decide whether recordings of one speaker and another recording share the speaker.

        Args:
            enrol: of the known speaker; the embeddings of a list are averaged.
            test: to compare with.
            threshold: takes the place of the stored one.
            sample_rate, min_voice: as for ``embed``.

        Raises:
            UserError: as ``embed``; a recording that is no speech.
        """
        enrolled = enrol if isinstance(enrol, list) else [enrol]
        known = self.embed(enrolled, sample_rate=sample_rate, min_voice=min_voice)
        other = self.embed(test, sample_rate=sample_rate, min_voice=min_voice)
        return self.decide(known, other, threshold=threshold)

    def decide(
        self, enrolled: npt.NDArray[np.floating], other: npt.NDArray[np.floating], *, threshold: float | None = None
    ) -> Verification:
        """The decision on embeddings: those of the known speaker, (recordings, embedding_dim), and another one."""
        return self.stored.decide(cosine(enrolment_vector(enrolled), other), threshold)


def load_model(
    folder: str | Path,
    *,
    device: str = "auto",
    precision: str = "fp32",
    channel: int | None = None,
    resample: bool = False,
    front_end: str | None = None,
) -> SpeakerModel:
    """Load a released model, ours or another toolkit's; nothing in it is executed.

    Args:
        folder: as written by ``svt average``, the exp_dir of a run, a folder as the other toolkits release it, or
            hf://org/name[@revision] of the Hugging Face Hub.
        device: auto, cpu, cuda or mps.
        precision: fp32, bf16 or fp16 (autocast).
        channel: channel of multi-channel audio, counted from 0; None: such audio is refused.
        resample: convert audio of another rate instead of refusing it.
        front_end: what its features are, of a release that does not say so: fbank80, kaldi_3d, ...

    Raises:
        UserError: files that are missing, damaged or do not fit each other.
    """
    return SpeakerModel.load(
        folder, device=device, precision=precision, channel=channel, resample=resample, front_end=front_end
    )
