"""Recordings that are taken in slices, noises and impulse responses: where they are and how long, as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.inspection import measure_durations
from svtoolkit.audio.shards.location import is_there
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.system.threads import map_in_order

SPARE_SAMPLES = 2
"""Read beyond a slice: the conversion of another rate may come out a sample short."""


@dataclass(frozen=True)
class SoundFiles:
    """Stretches of audio files of any rate; of several channels the first is taken, each being a recording by itself.

    Attributes:
        paths: of the files.
        offsets: where each stretch begins, in seconds, float64, (files,).
        seconds: how long each is, float64, (files,).
    """

    paths: tuple[str, ...]
    offsets: np.ndarray
    seconds: np.ndarray

    @classmethod
    def build(cls, utterances: Sequence[Utterance], key: str, shortest: float, longest: float, jobs: int) -> SoundFiles:
        """Take utterances, with durations from the headers where no table has one.

        Raises:
            UserError: none at all, files that are missing or no audio, too short or too long for what ``key`` is.
        """
        if not utterances:
            raise UserError(f"{key}: the data directory holds no utterance; give one that does, or null")
        silent = {row: utterance.path for row, utterance in enumerate(utterances) if utterance.duration is None}
        lengths = measure_durations(silent, jobs=jobs)
        known = [utterance.path for row, utterance in enumerate(utterances) if row not in silent]
        found = map_in_order(is_there, known, jobs)
        missing = [path for path, exists in zip(known, found, strict=True) if not exists]
        if missing:
            raise UserError(
                f"{key}: there is no file {missing[0]} ({len(missing)} of {len(utterances)} are missing); "
                "check the paths in wav.scp and the root of relative ones"
            )
        seconds = [
            lengths[row] - utterance.offset if utterance.duration is None else utterance.duration
            for row, utterance in enumerate(utterances)
        ]
        for utterance, length in zip(utterances, seconds, strict=True):
            if not shortest <= length <= longest:
                limit = f"{shortest:g} s or more" if length < shortest else f"{longest:g} s or less"
                raise UserError(
                    f"{key}: {utterance.utterance_id!r} ({utterance.path}) is {length:.4g} s long, expected {limit}; "
                    "drop it from the data directory"
                )
        offsets = np.array([utterance.offset for utterance in utterances])
        return cls(tuple(str(utterance.path) for utterance in utterances), offsets, np.array(seconds))

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: np.ndarray) -> SoundFiles:
        """These files alone."""
        return SoundFiles(tuple(self.paths[row] for row in rows), self.offsets[rows], self.seconds[rows])

    def read(self, index: int, start: float, samples: int, sample_rate: int) -> np.ndarray:
        """A stretch of one file at ``sample_rate``; where the file ends too early, it begins again.

        Args:
            index: of the file.
            start: in seconds from the beginning of it.
            samples: length of the result.

        Returns:
            float32, (samples,).

        Raises:
            UserError: no readable audio, none at ``start``, or samples that are not finite.
        """
        wanted = min((samples + SPARE_SAMPLES) / sample_rate, max(float(self.seconds[index]) - start, 0.0))
        slice_ = self._decode(index, start, wanted, sample_rate)
        if not len(slice_):
            raise UserError(
                f"{self.paths[index]}: there are no samples at {start:.2f} s of it; its duration is given too long: "
                "run `svt validate` on the data directory"
            )
        # The sum of squares is finite as long as every sample is, and below 1e17 of full scale.
        if not np.isfinite(np.dot(slice_, slice_)):
            raise UserError(f"{self.paths[index]}: holds samples that are not finite; re-create the file or drop it")
        return slice_[:samples] if len(slice_) >= samples else np.resize(slice_, samples)

    def read_whole(self, index: int, sample_rate: int) -> np.ndarray:
        """All of one file at ``sample_rate``: float32, (samples,)."""
        return self._decode(index, 0.0, float(self.seconds[index]), sample_rate)

    def fingerprint(self) -> str:
        """Changes with number, order and durations of the stretches, but not with the paths of files."""
        times = np.stack([self.offsets, self.seconds]) * 1e4
        return hashlib.sha256(times.round().astype("<i8").tobytes()).hexdigest()

    def _decode(self, index: int, start: float, seconds: float, sample_rate: int) -> np.ndarray:
        return read_audio(
            self.paths[index],
            sample_rate=sample_rate,
            start=float(self.offsets[index]) + start,
            duration=seconds,
            channel=0,
            resample=True,
        )
