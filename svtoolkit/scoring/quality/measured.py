"""What quality is measured of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.normalisation import DEFAULT_TOP_N
from svtoolkit.scoring.quality.registry import MEASURES
from svtoolkit.scoring.quality.table import QualityTable


@dataclass(frozen=True)
class Measured:
    """Utterances, and what is known of them.

    Attributes:
        utterances: with their audio; a measure has a value for each.
        table: their embeddings; None: there are none.
        cohort: one embedding per member; None: there is none.
        top_n: closest members of the cohort that count; None: 300, or all of a smaller one.
        channel: of files of several channels; None: such files are refused.
        jobs: threads that read files.
    """

    utterances: Sequence[Utterance]
    table: EmbeddingTable | None = None
    cohort: EmbeddingTable | None = None
    top_n: int | None = None
    channel: int | None = None
    jobs: int = 1

    @property
    def names(self) -> list[str]:
        return [utterance.utterance_id for utterance in self.utterances]

    @property
    def closest(self) -> int:
        """``top_n``, or what the cohort has of the usual number."""
        return min(DEFAULT_TOP_N, len(self.cohort or ())) if self.top_n is None else self.top_n


def measure_quality(
    measured: Measured, measures: Sequence[str], done: Callable[[str], object] = lambda name: None
) -> QualityTable:
    """The table of these measures.

    Args:
        done: called with the name of each measure when it is finished.

    Raises:
        UserError: no measure, one that is named twice or unknown, what a measure lacks, a value that is not finite.
    """
    if not measures or len(set(measures)) < len(measures):
        raise UserError(
            f"measures is [{', '.join(measures)}]; expected one or more of {', '.join(MEASURES)}, each once"
        )
    functions = [MEASURES.load(name) for name in measures]
    values = np.empty((len(measured.utterances), len(measures)))
    for column, (name, function) in enumerate(zip(measures, functions, strict=True)):
        values[:, column] = function(measured)
        bad = np.flatnonzero(~np.isfinite(values[:, column]))
        if len(bad):
            raise UserError(
                f"{name} of {measured.names[bad[0]]!r} is {values[bad[0], column]}, as of {len(bad) - 1} other "
                "utterances; expected finite numbers: look at its audio, or leave the measure out"
            )
        done(name)
    return QualityTable(list(measures), measured.names, values)
