"""The training set as arrays: every (utterance, speed, warp) is one entry, every (speaker, speed, warp) one class."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from svtoolkit.audio.inspection import try_durations
from svtoolkit.crops.manifest import Manifest
from svtoolkit.data.bad_files import BadFile
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """What a number of the training set stands for.

    Attributes:
        utterance: row of ``TrainingSet.utterances``.
        speed: factor.
        warp: number of the factor in ``TrainingSet.warps``.
        label: class.
    """

    utterance: int
    speed: float
    warp: int
    label: int


@dataclass(frozen=True)
class TrainingSet:
    """Utterances and classes.

    Attributes:
        utterances: in C-locale order of their ids; the duration of each is known.
        speeds, warps: factors of the speed and of the frequencies of the filters; class of (speaker, speed, warp) =
            speaker index + speakers * (speed index + speeds * warp index).
    """

    utterances: Manifest
    speeds: tuple[float, ...]
    warps: tuple[float, ...] = (1.0,)

    @classmethod
    def build(
        cls,
        manifest: Manifest,
        *,
        speeds: Sequence[float],
        warps: Sequence[float] = (1.0,),
        min_seconds: float,
        jobs: int = 1,
    ) -> TrainingSet:
        """Take the utterances of a data directory that are long enough.

        Durations come from segments or utt2dur, and from the header of the file where neither has one.

        Args:
            speeds, warps: factors; each pair of them makes new classes of all speakers.
            min_seconds: shorter utterances are left out.
            jobs: headers read at a time.

        Raises:
            UserError: a speed or warp that is not above 0 or listed twice, a file whose length is asked for and cannot
                be read (``leave_out_bad`` leaves such files out before), or nothing left.
        """
        for key, factors in (("speeds", speeds), ("warps", warps)):
            if not factors or min(factors) <= 0 or len(set(factors)) != len(factors):
                raise UserError(
                    f"data.{key} is {list(factors)}, expected different factors above 0, such as [1.0, 0.9, 1.1]"
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
        return cls(manifest if len(kept) == len(manifest) else manifest.take(kept), tuple(speeds), tuple(warps))

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
        return len(self.speakers) * self.copies

    @property
    def copies(self) -> int:
        """Entries of each utterance, and classes of each speaker: speeds x warps."""
        return len(self.speeds) * len(self.warps)

    def __len__(self) -> int:
        """Number of entries: utterances x speeds x warps."""
        return len(self.utterances) * self.copies

    def entry(self, index: int) -> Entry:
        """What an entry is, counted from 0."""
        copy, utterance = divmod(index, len(self.utterances))
        warp, speed = divmod(copy, len(self.speeds))
        label = int(self.utterances.speaker_index[utterance]) + len(self.speakers) * copy
        return Entry(utterance, self.speeds[speed], warp, label)

    def labels(self) -> np.ndarray:
        """Class of each entry, int64, shape (entries,)."""
        copies = len(self.speakers) * np.arange(self.copies)
        return (copies[:, np.newaxis] + self.utterances.speaker_index).ravel()

    def fingerprint(self) -> str:
        """Changes whenever an entry would mean another crop or class: guards a resumed run."""
        warps = "" if self.warps == (1.0,) else f"{self.warps!r} "  # what states of older versions do not say
        return hashlib.sha256(f"{self.speeds!r} {warps}{self.utterances.fingerprint()}".encode()).hexdigest()


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
