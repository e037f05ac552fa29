"""Embeddings of whole utterances, batched by equal length: without padding, each is the same as when embedded alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch

from svtoolkit.audio.files import inspect_audio, read_audio
from svtoolkit.data.feature_archive import open_features
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.device import autocast
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.system.threads import map_in_order

NOT_FINITE = "the embedding is not finite; check the audio for NaN"


@dataclass
class Extraction:
    """Embeddings, and the utterances that have none.

    Attributes:
        utterances: ids in the order asked for, failures left out.
        embeddings: float32, shape (utterances, embedding_dim).
        failures: utterance id -> reason.
        audio_seconds, wall_seconds: of what was extracted; their ratio is the real-time factor.
    """

    utterances: list[str]
    embeddings: np.ndarray
    failures: dict[str, str] = field(default_factory=dict)
    audio_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def real_time_factor(self) -> float:
        """Seconds of work for a second of audio."""
        return self.wall_seconds / self.audio_seconds if self.audio_seconds else float("nan")


@dataclass(eq=False)
class EmbeddingExtractor:
    """A network and its front end on a device.

    Args:
        network: (batch, frames, bins) -> (batch, embedding_dim); put into eval mode while it extracts.
        front_end: of ``svtoolkit.features.build_front_end``.
        precision: fp32, bf16 or fp16.
        channel, resample: as for ``read_audio``.
        batch_size: utterances in a batch at most, all of equal length.
        num_workers: threads that read audio; 0 means 1.
        stored: utterances are listed by their features, which the front end made before, not by their audio.

    Raises:
        UserError: a number out of range, an unknown precision.
    """

    network: torch.nn.Module
    front_end: FrontEnd
    device: torch.device
    _: KW_ONLY
    precision: str = "fp32"
    channel: int | None = None
    resample: bool = False
    batch_size: int = 32
    num_workers: int = 1
    stored: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.num_workers < 0:
            raise UserError(
                f"found batch_size={self.batch_size} num_workers={self.num_workers}, expected at least 1 and 0"
            )
        autocast(self.device, self.precision)  # refuses an unknown precision before any work
        self.network.to(self.device)
        self.front_end.to(self.device)

    def extract(self, utterances: Sequence[Utterance], progress: Callable[[int], object] | None = None) -> Extraction:
        """Embed utterances; one that cannot be read is listed under failures and the others are embedded.

        Args:
            progress: called with the number of utterances finished since its last call.
        """
        begin = time.perf_counter()
        found: dict[str, np.ndarray] = {}
        failures: dict[str, str] = {}
        audio_seconds = 0.0
        with self._evaluating():
            batches = self._plan(utterances, failures)
            if progress and failures:
                progress(len(failures))
            for batch, results in self._read_ahead(batches):
                for utterance, result in zip(batch, results, strict=True):
                    if isinstance(result, str):
                        failures[utterance.utterance_id] = result
                for utterance, signal, embedding in self._embed(batch, results):
                    if np.isfinite(embedding).all():
                        found[utterance.utterance_id] = embedding
                        audio_seconds += self._samples_of(signal) / self.front_end.sample_rate
                    else:
                        failures[utterance.utterance_id] = f"{utterance.path}: {NOT_FINITE}"
                if progress:
                    progress(len(batch))
        names = [utterance.utterance_id for utterance in utterances if utterance.utterance_id in found]
        matrix = np.stack([found[name] for name in names]) if names else np.empty((0, 0), dtype=np.float32)
        return Extraction(names, matrix, failures, audio_seconds, time.perf_counter() - begin)

    def embed_waveform(self, samples: np.ndarray) -> np.ndarray:
        """Embedding of samples in [-1, 1] at the model's rate: (samples,) -> (embedding_dim,) float32.

        Raises:
            UserError: another shape, shorter than one analysis window, or samples that give no finite embedding.
        """
        if samples.ndim != 1:
            raise UserError(f"found samples of shape {samples.shape}, expected one channel of shape (samples,)")
        if self.front_end.num_frames(len(samples)) < 1:
            raise UserError(_too_short(samples, self.front_end))
        with self._evaluating():
            embedding = self._forward([samples])[0]
        if not np.isfinite(embedding).all():
            raise UserError(NOT_FINITE)
        return embedding

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The network in eval mode; afterwards in the mode that it was in."""
        was_training = self.network.training
        self.network.eval()
        try:
            yield
        finally:
            self.network.train(was_training)

    def _plan(self, utterances: Sequence[Utterance], failures: dict[str, str]) -> list[list[Utterance]]:
        """Batches of equally many frames according to the files' headers, shortest first."""
        by_length: dict[int, list[Utterance]] = {}
        lengths = map_in_order(self._count_frames, utterances, max(1, self.num_workers))
        for utterance, length in zip(utterances, lengths, strict=True):
            if isinstance(length, str):
                failures[utterance.utterance_id] = length
            else:
                by_length.setdefault(length, []).append(utterance)
        return [
            group[first : first + self.batch_size]
            for _, group in sorted(by_length.items())
            for first in range(0, len(group), self.batch_size)
        ]

    def _read_ahead(self, batches: list[list[Utterance]]) -> Iterator[tuple[list[Utterance], list[np.ndarray | str]]]:
        """Signals of each batch, or reasons; read by threads while the network works on the batch before."""
        with ThreadPoolExecutor(max(1, self.num_workers)) as pool:
            reading = [[pool.submit(self._read, utterance) for utterance in batch] for batch in batches[:2]]
            for position, batch in enumerate(batches):
                results = [future.result() for future in reading.pop(0)]
                if position + 2 < len(batches):
                    reading.append([pool.submit(self._read, utterance) for utterance in batches[position + 2]])
                yield batch, results

    def _count_frames(self, utterance: Utterance) -> int | str:
        """Frames by the header, or the reason why it cannot be read."""
        try:
            if not self.stored:
                return self.front_end.num_frames(_num_samples(utterance))
            with open_features(utterance.path, self.front_end.num_bins) as matrix:
                return matrix.rows
        except UserError as error:
            return str(error)

    def _read(self, utterance: Utterance) -> np.ndarray | str:
        """Samples (samples,) or frames (frames, bins), or the reason why there are none."""
        try:
            if self.stored:
                with open_features(utterance.path, self.front_end.num_bins) as matrix:
                    return matrix.read(0, matrix.rows)
            samples = read_audio(
                utterance.path,
                sample_rate=self.front_end.sample_rate,
                start=utterance.offset,
                duration=None if utterance.whole_file else utterance.duration,
                channel=self.channel,
                resample=self.resample,
            )
        except UserError as error:
            return str(error)
        if self.front_end.num_frames(len(samples)) < 1:
            return f"{utterance.path}: {_too_short(samples, self.front_end)}"
        return samples

    def _embed(
        self, batch: list[Utterance], results: list[np.ndarray | str]
    ) -> Iterator[tuple[Utterance, np.ndarray, np.ndarray]]:
        """Utterance, samples or frames, and embedding of those that could be read, batched by number of frames.

        Frames are counted again: a header may be wrong, and resampling may round.
        """
        groups: dict[int, list[tuple[Utterance, np.ndarray]]] = {}
        for utterance, result in zip(batch, results, strict=True):
            if not isinstance(result, str):
                groups.setdefault(self.front_end.num_frames(self._samples_of(result)), []).append((utterance, result))
        for group in groups.values():
            embeddings = self._forward([signal for _, signal in group])
            yield from ((utterance, signal, row) for (utterance, signal), row in zip(group, embeddings, strict=True))

    def _samples_of(self, signal: np.ndarray) -> int:
        """Samples of a waveform, or that frames were made of."""
        return len(signal) if signal.ndim == 1 else self.front_end.num_samples(len(signal))

    @torch.inference_mode()
    def _forward(self, signals: list[np.ndarray]) -> np.ndarray:
        """Waveforms or frames, of equally many frames -> (batch, embedding_dim) float32."""
        length = len(signals[0])
        if signals[0].ndim == 1:
            length = self.front_end.num_samples(self.front_end.num_frames(length))
        batch = torch.from_numpy(np.stack([signal[:length] for signal in signals])).to(self.device)
        features = self.front_end.features_of(batch)
        with autocast(self.device, self.precision):
            return self.network(features).float().cpu().numpy()


def _num_samples(utterance: Utterance) -> int:
    info = inspect_audio(utterance.path)
    rest = info.samples - round(utterance.offset * info.sample_rate)
    if utterance.whole_file or utterance.duration is None:
        return rest
    return min(round(utterance.duration * info.sample_rate), rest)


def _too_short(samples: np.ndarray, front_end: FrontEnd) -> str:
    return f"{len(samples)} samples are shorter than one window of {front_end.num_samples(1)}; drop the utterance"
