"""The training set as arrays: every (utterance, speed) is one entry, every (speaker, speed) one class."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from svtoolkit.audio.inspection import try_durations
from svtoolkit.crops.manifest import Manifest
from svtoolkit.data.bad_files import BadFile
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingSet:
    """Utterances and classes.

    Attributes:
        utterances: in C-locale order of their ids; the duration of each is known.
        speeds: speed factors; class of (speaker, speed) = speaker index + speakers * speed index.
    """

    utterances: Manifest
    speeds: tuple[float, ...]

    @classmethod
    def build(cls, manifest: Manifest, *, speeds: Sequence[float], min_seconds: float, jobs: int = 1) -> TrainingSet:
        """Take the utterances of a data directory that are long enough.

        Durations come from segments or utt2dur, and from the header of the file where neither has one.

        Args:
            speeds: factors, each of which makes new classes of all speakers.
            min_seconds: shorter utterances are left out.
            jobs: headers read at a time.

        Raises:
            UserError: a speed that is not above 0 or listed twice, a file whose length is asked for and cannot be
                read (``leave_out_bad`` leaves such files out before), or nothing left.
        """
        if not speeds or min(speeds) <= 0 or len(set(speeds)) != len(speeds):
            raise UserError(
                f"data.speeds is {list(speeds)}, expected different factors above 0, such as [1.0, 0.9, 1.1]"
            )
        manifest = _measured(manifest, jobs)
        kept = np.flatnonzero(manifest.seconds >= min_seconds)
        if len(kept) < len(manifest):
            log.info(
                "%d of %d utterances are shorter than %g s and left out",
                len(manifest) - len(kept), len(manifest), min_seconds,
            )  # fmt: skip
        if not len(kept):
            raise UserError(
                f"no training utterance of {min_seconds} s or more is left; check the data or data.min_seconds"
            )
        return cls(manifest if len(kept) == len(manifest) else manifest.take(kept), tuple(speeds))

    @property
    def speakers(self) -> Sequence[str]:
        """Speaker ids, sorted."""
        return self.utterances.speakers

    @property
    def seconds(self) -> np.ndarray:
        """Duration of each utterance, float64, shape (utterances,)."""
        return self.utterances.seconds

    @property
    def num_classes(self) -> int:
        return len(self.speakers) * len(self.speeds)

    def __len__(self) -> int:
        """Number of entries: utterances x speeds."""
        return len(self.utterances) * len(self.speeds)

    def entry(self, index: int) -> tuple[int, float, int]:
        """Entry -> (utterance index, speed, class)."""
        speed_index, utterance_index = divmod(index, len(self.utterances))
        label = int(self.utterances.speaker_index[utterance_index]) + len(self.speakers) * speed_index
        return utterance_index, self.speeds[speed_index], label

    def fingerprint(self) -> str:
        """Changes whenever an entry would mean another crop or class: guards a resumed run."""
        return hashlib.sha256(f"{self.speeds!r} {self.utterances.fingerprint()}".encode()).hexdigest()


def leave_out_bad(manifest: Manifest, *, jobs: int = 1) -> tuple[Manifest, list[BadFile]]:
    """Durations for the utterances that no table gives one, from the headers of the files, and those left out for it.

    Args:
        manifest: of a data directory.
        jobs: headers read at a time.

    Raises:
        UserError: nothing is left.
    """
    unknown = np.flatnonzero(np.isnan(manifest.seconds)).tolist()
    if not unknown:
        return manifest, []
    utterances = {row: manifest[row] for row in unknown}
    lengths, reasons = try_durations({row: utterance.path for row, utterance in utterances.items()}, jobs=jobs)
    seconds = manifest.seconds.copy()
    for row, length in lengths.items():
        seconds[row] = length - utterances[row].offset
    if len(reasons) == len(manifest):
        raise UserError(f"none of {len(manifest)} utterances can be used: {next(iter(reasons.values()))}")
    bad = [BadFile(utterances[row].utterance_id, str(utterances[row].path), why) for row, why in reasons.items()]
    measured = replace(manifest, seconds=seconds)
    return (measured.take(np.flatnonzero(~np.isnan(seconds))) if bad else measured), bad


def _measured(manifest: Manifest, jobs: int) -> Manifest:
    """The same where no file may be bad."""
    measured, bad = leave_out_bad(manifest, jobs=jobs)
    if bad:
        raise UserError(f"{len(bad)} of {len(manifest)} audio files cannot be used: {bad[0].reason}")
    return measured
