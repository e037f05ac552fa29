"""What a corpus may bring beside its utterances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import Trials


@dataclass(frozen=True)
class Prepared:
    """A corpus as ``svt prepare`` writes it.

    Attributes:
        kaldi_dir: the utterances; of a corpus that is split, those to train on.
        evaluation: those of the evaluation speakers, where the corpus comes split.
        trials: published trial lists: name of the file to write -> trials.
        trial_files: trial lists of a source that are copied as they are.
    """

    kaldi_dir: KaldiDir
    evaluation: KaldiDir | None = None
    trials: Mapping[str, Trials] = field(default_factory=dict)
    trial_files: Sequence[Path] = ()
