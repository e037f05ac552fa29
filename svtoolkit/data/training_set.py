"""The training set as arrays: every (utterance, speed) is one entry, every (speaker, speed) one class."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.data.audio import measure_durations
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingSet:
    """Utterances, their durations and classes.

    Attributes:
        utterances: in C-locale order of their ids.
        seconds: duration of each, float64, shape (utterances,).
        speaker_index: of each, int64, shape (utterances,); speakers counted in sorted order.
        speakers: speaker ids, sorted.
        speeds: speed factors; class of (speaker, speed) = speaker index + speakers * speed index.
    """

    utterances: Sequence[Utterance]
    seconds: np.ndarray
    speaker_index: np.ndarray
    speakers: Sequence[str]
    speeds: tuple[float, ...]

    @classmethod
    def build(cls, kaldi_dir: KaldiDir, *, speeds: Sequence[float], min_seconds: float, jobs: int = 1) -> TrainingSet:
        """Take the utterances of a data directory that are long enough.

        Durations come from segments or utt2dur, and from the header of the file where both are silent.

        Args:
            speeds: factors, each of which makes new classes of all speakers.
            min_seconds: shorter utterances are left out.
            jobs: headers read at a time.

        Raises:
            UserError: a speed that is not above 0 or stands twice, a file whose length is asked for and cannot be
                read, or nothing left.
        """
        if not speeds or min(speeds) <= 0 or len(set(speeds)) != len(speeds):
            raise UserError(
                f"data.speeds is {list(speeds)}, expected different factors above 0, such as [1.0, 0.9, 1.1]"
            )
        everything = kaldi_dir.utterances()
        silent = {utterance.utterance_id: utterance.path for utterance in everything if utterance.duration is None}
        lengths = measure_durations(silent, jobs=jobs)
        utterances, seconds = [], []
        for utterance in everything:
            duration = utterance.duration
            if duration is None:
                duration = lengths[utterance.utterance_id] - utterance.offset
            if duration >= min_seconds:
                utterances.append(utterance)
                seconds.append(duration)
        dropped = len(kaldi_dir.utt2spk) - len(utterances)
        if dropped:
            log.info(
                "%d of %d utterances are shorter than %g s and left out", dropped, dropped + len(seconds), min_seconds
            )
        if not utterances:
            raise UserError(
                f"no training utterance of {min_seconds} s or more is left; check the data or data.min_seconds"
            )
        speakers = sorted({utterance.speaker for utterance in utterances})
        index = {speaker: number for number, speaker in enumerate(speakers)}
        speaker_index = np.array([index[utterance.speaker] for utterance in utterances], dtype=np.int64)
        return cls(utterances, np.array(seconds), speaker_index, speakers, tuple(speeds))

    @property
    def num_classes(self) -> int:
        return len(self.speakers) * len(self.speeds)

    def __len__(self) -> int:
        """Number of entries: utterances x speeds."""
        return len(self.utterances) * len(self.speeds)

    def entry(self, index: int) -> tuple[int, float, int]:
        """Entry -> (utterance index, speed, class)."""
        speed_index, utterance_index = divmod(index, len(self.utterances))
        label = int(self.speaker_index[utterance_index]) + len(self.speakers) * speed_index
        return utterance_index, self.speeds[speed_index], label

    def fingerprint(self) -> str:
        """Changes whenever an entry would mean another crop or class: guards a resumed run."""
        digest = hashlib.sha256(repr(self.speeds).encode())
        for utterance, seconds in zip(self.utterances, self.seconds, strict=True):
            start = "" if utterance.whole_file else f" from {utterance.offset:.4f}"
            digest.update(f"{utterance.utterance_id} {utterance.speaker} {seconds:.4f}{start}\n".encode())
        return digest.hexdigest()
