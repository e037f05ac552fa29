"""The data directories of a cross-validation: of each fold who trains and who is evaluated, and of all as one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from svtoolkit.data.audio_table import FEATURES, find_source
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.kaldi_dir import KaldiDir, further_tables
from svtoolkit.data.tables import write_table
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import Trials, write_trials

TRAIN, EVAL, TRIALS = "train", "eval", "trials"


class FoldedData(NamedTuple):
    """Speech whose speakers are divided.

    Attributes:
        folder: that it was read from.
        kaldi_dir: all of it.
        fold_of: speaker -> fold, counted from 1; 0: trains every time.
    """

    folder: Path
    kaldi_dir: KaldiDir
    fold_of: Mapping[str, int]

    def digest(self) -> str:
        """Of speakers, audio and folds: SHA-256."""
        parts = [sorted(table.items()) for table in (self.kaldi_dir.utt2spk, self.kaldi_dir.wav_scp, self.fold_of)]
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def write(self, folder: Path, fold: int, *, seed: int, targets_per_speaker: int) -> None:
        """Write TRAIN and EVAL of one fold, with the trials drawn of its speakers, into a folder.

        Raises:
            UserError: as :func:`~svtoolkit.data.trial_drawing.make_trials`.
        """
        held_out = {speaker for speaker, its in self.fold_of.items() if its == fold}
        utt2spk = self.kaldi_dir.utt2spk
        parts = {
            TRAIN: self.kaldi_dir.subset(name for name, speaker in utt2spk.items() if speaker not in held_out),
            EVAL: self.kaldi_dir.subset(name for name, speaker in utt2spk.items() if speaker in held_out),
        }
        drawn = make_trials(parts[EVAL].spk2utt, seed=seed, targets_per_speaker=targets_per_speaker)
        for name, part in parts.items():
            part.write(folder / name)
            if part.audio_table == FEATURES:
                StoredFeatures.read(self.folder).write(folder / name)
        write_trials(folder / EVAL / TRIALS, drawn)


def read_folded(folder: Path, root: str | None, source: str | None) -> KaldiDir:
    """The data directory that is divided: files, shards or features."""
    return KaldiDir.read(folder, root, find_source(folder, source))


def write_pooled(folder: Path, data: FoldedData, parts: Iterable[tuple[str, Trials]]) -> Trials:
    """Write trials of several parts as one list, with the speakers, durations and further tables of their utterances.

    Args:
        folder: where the list and the tables go.
        data: of the utterances.
        parts: what is put in front of the names of the utterances of a part, and its trials.

    Returns:
        the list, part by part.
    """
    kept = list(parts)
    pooled = Trials.of(
        [
            (prefix + enrol, prefix + test, bool(target))
            for prefix, trials in kept
            for enrol, test, target in zip(trials.enrol, trials.test, trials.target, strict=True)
        ]
    )
    utt2spk = data.kaldi_dir.utt2spk
    named = {prefix + name: name for prefix, trials in kept for name in trials.names}
    whole = data.kaldi_dir
    durations = {name: whole.utterance(name).duration for name in named.values()}
    tables = {
        "utt2spk": utt2spk,
        "utt2dur": {name: repr(float(seconds)) for name, seconds in durations.items() if seconds is not None},
        "utt2recording": {name: segment.recording for name, segment in whole.segments.items()},
        **{name: table for name, table in further_tables(data.folder, utt2spk) if name.startswith("utt2")},
    }
    for name, table in tables.items():
        if of_pooled := {new: table[old] for new, old in named.items() if old in table}:
            write_table(folder / name, of_pooled)
    write_trials(folder / TRIALS, pooled)
    return pooled
