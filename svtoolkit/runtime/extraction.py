"""Embeddings of many utterances by an exported file, several beside each other, read by threads meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.scoring.extracted import Embedded
from svtoolkit.system.threads import map_in_order


@dataclass
class RuntimeExtractor:
    """What ``svtoolkit.scoring.embedding_parts`` embeds with; every utterance goes by itself, whole.

    Attributes:
        model: and the runtime that runs it.
        num_workers: threads that read audio; 0 means 1.
        streams: utterances beside each other, for which the model was loaded.
        batch_seconds: of utterances that are longer, only one goes at a time: it may take much memory.
        limit: of no effect.
    """

    model: RuntimeModel
    num_workers: int = 1
    streams: int = 1
    batch_seconds: float = 120.0
    limit: float = 0.0
    stored: bool = False
    _long: Lock = field(default_factory=Lock, init=False, repr=False)

    def embed(
        self, utterances: Sequence[Utterance], is_done: Callable[[int], bool] = lambda row: False
    ) -> Iterator[Embedded]:
        """Each utterance as it is finished, in order.

        Args:
            is_done: position -> it is embedded already and left out.
        """
        rows = [row for row in range(len(utterances)) if not is_done(row)]

        def read(row: int) -> tuple[int, np.ndarray | str]:
            utterance = utterances[row]
            try:
                return row, self.model.read(
                    utterance.path,
                    start=utterance.offset,
                    duration=None if utterance.whole_file else utterance.duration,
                )
            except UserError as error:
                return row, str(error)

        def embedded(found: tuple[int, np.ndarray | str]) -> Embedded:
            row, samples = found
            if isinstance(samples, str):
                return Embedded(failures={row: samples})
            seconds = len(samples) / self.model.sample_rate
            try:
                with self._long if seconds > self.batch_seconds else nullcontext():
                    embedding = self.model.embed(samples)
            except UserError as error:
                return Embedded(failures={row: f"{utterances[row].path}: {error}"})
            return Embedded([row], [embedding], {}, seconds)

        return map_in_order(embedded, map_in_order(read, rows, max(1, self.num_workers)), self.streams)
