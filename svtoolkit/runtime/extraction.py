"""Embeddings of many utterances by an exported file, one after the other, read by threads meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.scoring.extracted import Embedded
from svtoolkit.system.threads import map_in_order


@dataclass
class RuntimeExtractor:
    """What ``svtoolkit.scoring.embedding_parts`` embeds with.

    Attributes:
        model: and the runtime that runs it.
        num_workers: threads that read audio; 0 means 1.
        batch_seconds, limit: of no effect: every utterance goes by itself, whole.
    """

    model: RuntimeModel
    num_workers: int = 1
    batch_seconds: float = 0.0
    limit: float = 0.0
    stored: bool = False

    def embed(
        self, utterances: Sequence[Utterance], is_done: Callable[[int], bool] = lambda row: False
    ) -> Iterator[Embedded]:
        """Each utterance as it is finished, in order.

        Args:
            is_done: position -> it is embedded already and left out.
        """
        rows = [row for row in range(len(utterances)) if not is_done(row)]

        def read(row: int) -> np.ndarray | str:
            utterance = utterances[row]
            try:
                return self.model.read(
                    utterance.path,
                    start=utterance.offset,
                    duration=None if utterance.whole_file else utterance.duration,
                )
            except UserError as error:
                return str(error)

        for row, samples in zip(rows, map_in_order(read, rows, max(1, self.num_workers)), strict=True):
            if isinstance(samples, str):
                yield Embedded(failures={row: samples})
                continue
            try:
                embedding = self.model.embed(samples)
            except UserError as error:
                yield Embedded(failures={row: f"{utterances[row].path}: {error}"})
                continue
            yield Embedded([row], [embedding], {}, len(samples) / self.model.sample_rate)
