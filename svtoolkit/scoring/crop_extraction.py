"""Embeddings of utterances as means over overlapping crops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from svtoolkit.audio.inspection import inspect_audio
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.scoring.embedding_parts import Extractor
from svtoolkit.scoring.extracted import Embedded
from svtoolkit.system.threads import map_in_order

TOGETHER = 32
"""Utterances whose crops are finished together, so that a run that is resumed has the batches of one that was not."""


@dataclass
class CropExtractor:
    """Embeds evenly placed crops of an utterance, and takes the mean of their unit embeddings.

    The dot product of two such means is the mean similarity of all pairs of crops, which trainers on VoxCeleb score by
    with ten crops of four seconds (Chung et al. 2020, "In defence of metric learning for speaker recognition"). The
    first crop begins with the utterance, the last one ends with it; of a single crop the middle is taken. An utterance
    that is no longer than a crop is embedded whole.

    Args:
        extractor: that embeds the crops; of audio, not of stored features.
        crops: of an utterance.
        seconds: length of a crop.
        jobs: headers read at a time, of utterances whose duration no table says.

    Raises:
        UserError: a number out of range.
    """

    extractor: Extractor
    crops: int
    seconds: float
    jobs: int = 1
    stored: bool = False

    def __post_init__(self) -> None:
        if self.crops < 1:
            raise UserError(f"crops is {self.crops}, expected 1 or more, or null: the whole utterance")
        if not self.seconds > 0:
            raise UserError(f"crop_seconds is {self.seconds:g}, expected more than 0 seconds")

    @property
    def batch_seconds(self) -> float:
        """Of the extractor of crops."""
        return self.extractor.batch_seconds

    @batch_seconds.setter
    def batch_seconds(self, seconds: float) -> None:
        self.extractor.batch_seconds = seconds

    @property
    def limit(self) -> float:
        """Of the extractor of crops."""
        return self.extractor.limit

    @limit.setter
    def limit(self, seconds: float) -> None:
        self.extractor.limit = seconds

    def embed(
        self, utterances: Sequence[Utterance], is_done: Callable[[int], bool] = lambda row: False
    ) -> Iterator[Embedded]:
        """Some utterances at a time, the longest first; one with a crop that fails has no embedding.

        Args:
            is_done: position -> it is embedded already and left out.
        """
        lengths = list(map_in_order(_seconds, utterances, max(1, self.jobs)))
        unreadable = {row: length for row, length in enumerate(lengths) if isinstance(length, str)}
        yield Embedded(failures={row: reason for row, reason in unreadable.items() if not is_done(row)})
        seconds = {row: length for row, length in enumerate(lengths) if not isinstance(length, str)}
        order = sorted(seconds, key=lambda row: -seconds[row])
        for first in range(0, len(order), TOGETHER):
            rows = [row for row in order[first : first + TOGETHER] if not is_done(row)]
            if rows:
                yield self._embed({row: (utterances[row], seconds[row]) for row in rows})

    def cut(self, utterance: Utterance, seconds: float) -> list[Utterance]:
        """The crops of an utterance of so many seconds."""
        if seconds <= self.seconds:
            return [utterance]
        room = seconds - self.seconds
        starts = np.linspace(0, room, self.crops) if self.crops > 1 else [room / 2]
        return [
            replace(utterance, offset=utterance.offset + float(start), duration=self.seconds, whole_file=False)
            for start in starts
        ]

    def _embed(self, utterances: dict[int, tuple[Utterance, float]]) -> Embedded:
        owners: list[tuple[int, int]] = []
        crops: list[Utterance] = []
        for row, (utterance, seconds) in utterances.items():
            own = self.cut(utterance, seconds)
            owners += [(row, number) for number in range(len(own))]
            crops += own
        found: defaultdict[int, dict[int, np.ndarray]] = defaultdict(dict)
        result = Embedded()
        for batch in self.extractor.embed(crops, is_done=lambda crop: False):
            for place, reason in batch.failures.items():
                result.failures.setdefault(owners[place][0], reason)
            for place, embedding in zip(batch.rows, batch.embeddings, strict=True):
                row, number = owners[place]
                norm = np.linalg.norm(embedding)
                if norm == 0:
                    result.failures.setdefault(row, f"{utterances[row][0].path}: the embedding of a crop is zero")
                found[row][number] = embedding / (norm or 1.0)
        for row, (_, seconds) in utterances.items():
            if row not in result.failures:
                result.rows.append(row)
                result.embeddings.append(np.mean([found[row][number] for number in sorted(found[row])], axis=0))
                result.audio_seconds += seconds
        return result


def _seconds(utterance: Utterance) -> float | str:
    """Length by the tables or by the header, or the reason why it cannot be read."""
    if utterance.duration is not None:
        return utterance.duration
    try:
        return inspect_audio(utterance.path).seconds - utterance.offset
    except UserError as error:
        return str(error)
