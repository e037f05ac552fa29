"""Embeddings of whole utterances, batched by length: each is the same as when embedded alone, up to rounding."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

import numpy as np
import torch

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.voice_activity import measure_voice
from svtoolkit.data.audio_survey import explain_samples
from svtoolkit.data.feature_archive import read_features
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.device import autocast, single_threads
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.scoring.batches import group_by_length, plan_batches
from svtoolkit.scoring.extracted import Embedded, Extraction
from svtoolkit.scoring.forward import LEAST_SECONDS, BoundedForward, TooLongError
from svtoolkit.scoring.pass_memory import PassMemory, in_all, show_bytes, within
from svtoolkit.system.threads import map_in_order, submit_ahead

READ_AHEAD = 2
"""Batches that are read while the network works."""
PADDING = 0.05
"""Share of its frames by which an utterance may be shorter than the longest of its batch."""
CPU_BATCH_SECONDS = 8.0
"""Of audio in a batch on a CPU: enough for small layers, and the maps of large ones stay close to the cores."""
NOT_FINITE = "the embedding is not finite; check the audio for NaN, and the weights of the model"
NOT_FINITE_OF_FEATURES = "the embedding is not finite; choose a wider precision, or check the weights for NaN"


@dataclass(eq=False)
class EmbeddingExtractor:
    """A network and its front end on a device.

    Args:
        network: (batch, frames, bins) -> (batch, embedding_dim); put into eval mode while it extracts.
        front_end: of ``svtoolkit.features.build_front_end``.
        precision: fp32, bf16 or fp16.
        channel, resample, keys: as for ``read_audio``.
        batch_seconds: audio in a batch at most; a longer recording goes in stretches of so many seconds, to the same
            embedding, where the network is a chain of convolutions (``svtoolkit.models.stretches``).
        batch_size: utterances in a batch at most, of about equal length, or of equal length where the network takes no
            padding.
        threads: batches that go through the network beside each other, each on one thread of the CPU; 0: one after the
            other, on the threads that torch has. The embeddings are the same, up to rounding, and to the bit those of
            any other number above 0.
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
    batch_seconds: float = 120.0
    batch_size: int = 32
    threads: int = 0
    num_workers: int = 1
    keys: str = ""
    stored: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.num_workers < 0:
            raise UserError(
                f"found batch_size={self.batch_size} num_workers={self.num_workers}, expected at least 1 and 0"
            )
        if self.threads < 0:
            raise UserError(f"threads is {self.threads}, expected 0 or more")
        if not self.batch_seconds >= 1:
            raise UserError(f"batch_seconds is {self.batch_seconds:g}, expected 1 second of audio or more")
        autocast(self.device, self.precision)  # refuses an unknown precision before any work
        self.network.to(self.device)
        self.front_end.to(self.device)
        self.forward = BoundedForward(self.network, self.front_end, self.device, self.precision, self.batch_seconds)

    @property
    def limit(self) -> float:
        """Seconds of audio that go through the network at once; lowered for good where memory runs out."""
        return self.forward.seconds

    @limit.setter
    def limit(self, seconds: float) -> None:
        self.forward.seconds = seconds

    def fit_into(self, budget: float, memory: PassMemory) -> None:
        """Lower ``batch_seconds`` to what is predicted to fit, and refuse recordings that are not.

        Args:
            budget: bytes of the device that a pass may take, weights among them.
            memory: of a pass.

        Raises:
            UserError: a second of audio is predicted not to fit.
        """
        if self.device.type == "cpu":  # waveforms are there, too, of this batch and of those that are read meanwhile
            memory = replace(memory, per_second=memory.per_second + 4 * self.front_end.sample_rate * (1 + READ_AHEAD))
        room = memory.held + (within(budget) - memory.held) / max(1, self._beside)
        seconds = memory.seconds_within(room)
        if seconds < LEAST_SECONDS:
            raise UserError(
                f"memory_gib={budget / 2**30:.3g} is too little for this model, which is predicted to need "
                f"{show_bytes(in_all(memory.of(LEAST_SECONDS)))} for a second of audio; raise it"
            )
        self.batch_seconds = min(self.batch_seconds, seconds)
        self.forward.seconds = min(self.forward.seconds, seconds)
        self.forward.room, self.forward.memory = room, memory

    def extract(
        self,
        utterances: Sequence[Utterance],
        progress: Callable[[int], object] | None = None,
        *,
        min_voice: float = 0.0,
    ) -> Extraction:
        """Embed utterances; one that cannot be read is listed under failures and the others are embedded.

        Args:
            progress: called with the number of utterances finished since its last call.
            min_voice: seconds of voice below which an utterance fails as well; 0: not checked, as of stored features.

        Raises:
            ValueError: voice is asked for of stored features, in which none is measured.
        """
        begin = time.perf_counter()
        found: dict[int, np.ndarray] = {}
        failures: dict[int, str] = {}
        audio_seconds = 0.0
        for batch in self.embed(utterances, min_voice=min_voice):
            found |= dict(zip(batch.rows, batch.embeddings, strict=True))
            failures |= batch.failures
            audio_seconds += batch.audio_seconds
            if progress and batch.finished:
                progress(batch.finished)
        rows = sorted(found)
        return Extraction(
            [utterances[row].utterance_id for row in rows],
            np.stack([found[row] for row in rows]) if rows else np.empty((0, 0), dtype=np.float32),
            {utterances[row].utterance_id: failures[row] for row in sorted(failures)},
            audio_seconds,
            time.perf_counter() - begin,
        )

    def embed(
        self,
        utterances: Sequence[Utterance],
        is_done: Callable[[int], bool] = lambda row: False,
        *,
        min_voice: float = 0.0,
    ) -> Generator[Embedded, None, None]:
        """Batches as they are finished, the most audio first; utterances without a readable header before them.

        Args:
            is_done: position -> it is embedded already and left out; which others go together does not depend on it.
            min_voice: as for ``extract``.
        """
        if min_voice > 0 and self.stored:
            raise ValueError(f"min_voice is {min_voice:g}, but stored features hold no waveform to look for voice in")
        with self._evaluating():
            batches, failures = plan_batches(
                utterances,
                self.front_end,
                batch_seconds=self._together,
                batch_size=self.batch_size,
                padding=self._padding,
                jobs=max(1, self.num_workers),
                stored=self.stored,
            )
            yield Embedded(failures={row: reason for row, reason in failures.items() if not is_done(row)})
            left = [[row for row in batch if not is_done(row)] for batch in batches]
            signals = self._read_ahead(utterances, [batch for batch in left if batch], min_voice)
            if 0 < self._beside <= len(batches):  # of fewer, all threads work on one
                with single_threads(self._beside) as pool:
                    embed, ahead = partial(self._embed_read, utterances), 2 * (self._beside - 1)
                    yield from submit_ahead(pool, embed, signals, ahead)
            else:
                yield from map(partial(self._embed_read, utterances), signals)

    def unusable(self, utterances: Sequence[Utterance]) -> dict[int, str]:
        """Position -> reason of those that would have no embedding, or that of silence: all are read, none embedded.

        Of stored features silence is not seen: those that are cut off or not finite are named.
        """

        def examine(utterance: Utterance) -> str | None:
            signal = self._read(utterance, 0.0)
            if isinstance(signal, str):
                return signal
            reason = None if self.stored else explain_samples(signal)
            return reason and f"{utterance.path}: {reason}; re-create the file or drop it"

        reasons = map_in_order(examine, utterances, max(1, self.num_workers))
        return {row: reason for row, reason in enumerate(reasons) if reason is not None}

    def embed_waveform(self, samples: np.ndarray) -> np.ndarray:
        """Embedding of samples in [-1, 1] at the model's rate: (samples,) -> (embedding_dim,) float32.

        Raises:
            UserError: another shape, shorter than one analysis window, or samples that give no finite embedding.
        """
        if samples.ndim != 1:
            raise UserError(f"found samples of shape {samples.shape}, expected one channel of shape (samples,)")
        if self.front_end.num_frames(len(samples)) < 1:
            raise UserError(too_short(samples, self.front_end))
        with self._evaluating():
            embedding = self.forward([samples])[0]
        if not np.isfinite(embedding).all():
            raise UserError(NOT_FINITE)
        return embedding

    @property
    def _beside(self) -> int:
        """Batches beside each other; 0: one after the other."""
        return self.threads if self.device.type == "cpu" else 0

    @property
    def _together(self) -> float:
        """Seconds of audio that utterances go together by."""
        return min(self.batch_seconds, CPU_BATCH_SECONDS) if self.device.type == "cpu" else self.batch_seconds

    @property
    def _padding(self) -> float:
        return PADDING if self.batch_size > 1 and self.forward.pads else 0.0

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The network in eval mode; afterwards in the mode that it was in."""
        was_training = self.network.training
        self.network.eval()
        try:
            yield
        finally:
            self.network.train(was_training)

    def _read_ahead(
        self, utterances: Sequence[Utterance], batches: list[list[int]], min_voice: float
    ) -> Iterator[tuple[list[int], list[np.ndarray | str]]]:
        """Signals of each batch, or reasons; read by threads while the network works on the batch before."""
        with ThreadPoolExecutor(max(1, self.num_workers)) as pool:
            reading = [
                [pool.submit(self._read, utterances[row], min_voice) for row in batch] for batch in batches[:READ_AHEAD]
            ]
            for position, batch in enumerate(batches):
                results = [future.result() for future in reading.pop(0)]
                if position + READ_AHEAD < len(batches):
                    following = batches[position + READ_AHEAD]
                    reading.append([pool.submit(self._read, utterances[row], min_voice) for row in following])
                yield batch, results

    def _read(self, utterance: Utterance, min_voice: float) -> np.ndarray | str:
        """Samples (samples,) or frames (frames, bins), or the reason why there are none."""
        try:
            if self.stored:
                return read_features(utterance.path, self.front_end.num_bins)
            samples = read_audio(
                utterance.path,
                sample_rate=self.front_end.sample_rate,
                start=utterance.offset,
                duration=None if utterance.whole_file else utterance.duration,
                channel=self.channel,
                resample=self.resample,
                keys=self.keys,
            )
        except UserError as error:
            return str(error)
        except MemoryError:
            return f"{utterance.path}: does not fit into the memory of this machine; cut it into segments"
        if self.front_end.num_frames(len(samples)) < 1:
            return f"{utterance.path}: {too_short(samples, self.front_end)}"
        no_speech = None
        if min_voice > 0:
            no_speech = measure_voice(samples, self.front_end.sample_rate).why_no_speech(min_voice)
        return samples if no_speech is None else f"{utterance.path}: {no_speech}"

    def _embed_read(self, utterances: Sequence[Utterance], read: tuple[list[int], list[np.ndarray | str]]) -> Embedded:
        """The embeddings of those that could be read, grouped by number of frames.

        Frames are counted again: a header may be wrong, and resampling may round.
        """
        batch = Embedded()
        signals: dict[int, np.ndarray] = {}
        for row, result in zip(*read, strict=True):
            if isinstance(result, str):
                batch.failures[row] = result
            else:
                signals[row] = result
        lengths = [(self.forward.num_frames(signal), row) for row, signal in signals.items()]
        for _, alike in group_by_length(lengths, self._padding):
            group = [(row, signals[row]) for row in alike]
            try:
                embeddings = self.forward([signal for _, signal in group])
            except TooLongError as error:  # which shorter ones need not be
                batch.failures |= {row: f"{utterances[row].path}: {error}" for row, _ in group}
                continue
            for (row, signal), embedding in zip(group, embeddings, strict=True):
                if np.isfinite(embedding).all():
                    batch.rows.append(row)
                    batch.embeddings.append(embedding)
                    batch.audio_seconds += self.forward.num_samples(signal) / self.front_end.sample_rate
                else:
                    reason = NOT_FINITE_OF_FEATURES if self.stored else NOT_FINITE
                    batch.failures[row] = f"{utterances[row].path}: {reason}"
        return batch


def too_short(samples: np.ndarray, front_end: FrontEnd) -> str:
    """What is said of a recording without a single frame."""
    return f"{len(samples)} samples are shorter than one window of {front_end.num_samples(1)}; drop the utterance"
