"""An exported model that embeds and compares recordings, without torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from svtoolkit.audio.files import name_of, read_audio
from svtoolkit.audio.voice_activity import measure_voice
from svtoolkit.checkpoints.exported import WAVEFORM, Exported, is_exported, parse_exported
from svtoolkit.errors import UserError
from svtoolkit.models.onnx_graph import metadata_of
from svtoolkit.runtime.engines import AUTO, Engine, fastest, open_engine
from svtoolkit.runtime.filter_bank import NumpyFilterBank
from svtoolkit.scoring.pair import cosine, enrolment_vector
from svtoolkit.scoring.verification import StoredThreshold, Verification
from svtoolkit.system.processes import count_cores

log = logging.getLogger(__name__)

EXAMPLE_SECONDS = 4.0
"""Of the noise that runtimes are timed on."""


class RuntimeModel:
    """An exported file and the runtime that runs it.

    Attributes:
        exported: what the file says.
        runtime: onnx, openvino or ncnn.
        stored: threshold, error rates and calibration.
        digest: SHA-256 of what its embeddings depend on; that of the model that it was made of, where they are equal.
    """

    def __init__(
        self,
        exported: Exported,
        digest: str,
        runtime: str,
        engine: Engine,
        *,
        channel: int | None = None,
        resample: bool = False,
    ) -> None:
        self.exported = exported
        self.digest = digest
        self.runtime = runtime
        self.stored = StoredThreshold.read(exported.verification)
        self.channel = channel
        self.resample = resample
        self._engine = engine
        self._filter_bank = None if exported.input == WAVEFORM else NumpyFilterBank(exported.features)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        runtime: str = "onnx",
        threads: int | None = None,
        streams: int = 1,
        channel: int | None = None,
        resample: bool = False,
    ) -> RuntimeModel:
        """Load a file of `svt export`.

        Args:
            runtime: onnx, openvino, ncnn, or auto: the fastest of those that are installed, which are timed.
            threads: of the CPU; None: one for each core.
            streams: recordings that are embedded beside each other, by as many threads of the caller; they share
                ``threads``.
            channel: channel of multi-channel audio, counted from 0; None: such audio is refused.
            resample: convert audio of another rate instead of refusing it.

        Raises:
            UserError: no such file, one that is damaged, a runtime that is missing.
        """
        if not is_exported(path):
            raise UserError(f"{path}: is no file of `svt export`; make one with `svt export model=... out=model.onnx`")
        return cls.of(
            Path(path).read_bytes(),
            named=str(path),
            runtime=runtime,
            threads=threads,
            streams=streams,
            channel=channel,
            resample=resample,
        )

    @classmethod
    def of(
        cls,
        content: bytes,
        *,
        named: str = "the exported file",
        runtime: str = "onnx",
        threads: int | None = None,
        streams: int = 1,
        channel: int | None = None,
        resample: bool = False,
    ) -> RuntimeModel:
        """The same of the content of a file, which messages call ``named``."""
        threads = threads or count_cores()
        try:
            first = "onnx" if runtime == AUTO else runtime
            engine = open_engine(first, content, threads, streams)
            exported = parse_exported(metadata_of(content))
            model = cls(exported, exported.digest(content), first, engine, channel=channel, resample=resample)
            if runtime == AUTO:
                model._choose(content, threads, streams)
        except ValueError as error:
            raise UserError(f"{named}: {error}; export the model again, or choose another runtime") from error
        except UserError as error:
            raise UserError(f"{named}: {error}") from error
        return model

    @property
    def sample_rate(self) -> int:
        """Hz."""
        return self.exported.features.sample_rate

    @property
    def embedding_dim(self) -> int:
        return int(self.exported.model["embedding_dim"])

    @property
    def threshold(self) -> float | None:
        """Cosine at and above which two are accepted as one speaker; None until one is stored."""
        return self.stored.threshold

    @property
    def verification(self) -> Mapping[str, Any]:
        """What the file says of its threshold and its scores."""
        return self.exported.verification

    def read(self, path: str | Path | BinaryIO, *, start: float = 0.0, duration: float | None = None) -> np.ndarray:
        """Samples of a file at ``sample_rate``, (samples,) float32; arguments and errors of ``read_audio``."""
        return read_audio(
            path,
            sample_rate=self.sample_rate,
            start=start,
            duration=duration,
            channel=self.channel,
            resample=self.resample,
        )

    def embed(self, audio: str | Path | BinaryIO | np.ndarray, *, min_voice: float = 0.0) -> np.ndarray:
        """Embedding of a recording, (embedding_dim,) float32.

        Args:
            audio: a path, a file object, or float samples in [-1, 1] at ``sample_rate``, (samples,).
            min_voice: seconds of voice that it must have; 0: not checked.

        Raises:
            UserError: as ``svtoolkit.scoring.speaker_model.SpeakerModel.embed``.
        """
        if isinstance(audio, np.ndarray):
            return self._embed(np.ascontiguousarray(audio, dtype=np.float32), min_voice)
        samples = self.read(audio)
        try:
            return self._embed(samples, min_voice)
        except UserError as error:
            raise UserError(f"{name_of(audio)}: {error}") from error

    def decide(self, enrolled: np.ndarray, other: np.ndarray, *, threshold: float | None = None) -> Verification:
        """The decision on embeddings: those of the known speaker, (recordings, embedding_dim), and another one."""
        return self.stored.decide(cosine(enrolment_vector(enrolled), other), threshold)

    def _embed(self, samples: np.ndarray, min_voice: float) -> np.ndarray:
        least = round(self.exported.features.frame_length_ms * self.sample_rate / 1000)
        if len(samples) < least:
            raise UserError(f"{len(samples)} samples are shorter than one window of {least}; drop the utterance")
        try:
            embedding = self._engine.run(self.exported.input, self._input(samples))[0]
        except ValueError as error:
            raise UserError(f"the exported graph cannot run on it ({error}); give a longer recording") from error
        if not np.isfinite(embedding).all():
            raise UserError("the embedding is not finite; check the audio for NaN, and that it is not too short")
        reason = measure_voice(samples, self.sample_rate).why_no_speech(min_voice) if min_voice > 0 else None
        if reason is not None:
            raise UserError(reason)
        return embedding

    def _input(self, samples: np.ndarray) -> np.ndarray:
        return (samples if self._filter_bank is None else self._filter_bank(samples))[np.newaxis]

    def _choose(self, content: bytes, threads: int, streams: int) -> None:
        """The fastest runtime on noise, from now on."""
        noise = np.random.default_rng(0).standard_normal(round(EXAMPLE_SECONDS * self.sample_rate)) * 0.1
        example = self._input(noise.astype(np.float32))
        self.runtime, seconds = fastest(content, threads, self.exported.input, example, streams)
        measured = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in seconds.items())
        log.info(
            "%s is the fastest: %g s of noise take %s with %d threads",
            self.runtime, EXAMPLE_SECONDS, measured, max(1, threads // streams),
        )  # fmt: skip
        if self.runtime != "onnx":
            self._engine = open_engine(self.runtime, content, threads, streams)
