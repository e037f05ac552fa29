"""Noises and room impulse responses of data directories: where they are and how long, as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from svtoolkit.audio.files import inspect_audio, measure_durations, read_audio
from svtoolkit.audio.shards.location import is_there
from svtoolkit.augmentation.reverberation import find_response, normalise_response
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.system.threads import map_in_order

NOISE_CATEGORIES = ("noise", "music", "speech")
"""Of MUSAN (Snyder et al., arXiv:1510.08484); they stand where other data directories name speakers."""

SHORTEST_NOISE = 0.1
"""Seconds; a shorter one, repeated to the length of a crop, would be a hum."""

SHORTEST_RESPONSE, LONGEST_RECORDING = 0.001, 30.0
"""Seconds of the file of an impulse response; whatever is longer is no response but a recording of something."""

CACHED_RESPONSES = 512
"""A library of up to so many responses (32 MB of one second at 16 kHz) keeps them in memory."""

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
        """Take utterances, with durations from the headers where the tables are silent.

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
        """Changes with number, order and lengths of the stretches; where files lie is no part of it."""
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


@dataclass(frozen=True)
class NoiseLibrary:
    """Noises by category; a category without files is not there."""

    categories: Mapping[str, SoundFiles]

    @classmethod
    def build(cls, utterances: Sequence[Utterance], *, jobs: int = 1) -> NoiseLibrary:
        """Take the utterances of a data directory whose speakers are categories: noise, music and speech.

        Args:
            utterances: such as ``KaldiDir.utterances()``.
            jobs: files looked at at a time.

        Raises:
            UserError: another speaker, or files that cannot be used.
        """
        for utterance in utterances:
            if utterance.speaker not in NOISE_CATEGORIES:
                raise UserError(
                    f"augment.noise: utterance {utterance.utterance_id!r} is of the category (speaker) "
                    f"{utterance.speaker!r}, expected {', '.join(NOISE_CATEGORIES)}; give a data directory of noises "
                    "prepared as MUSAN is, or correct its utt2spk"
                )
        files = SoundFiles.build(utterances, "augment.noise", SHORTEST_NOISE, np.inf, jobs)
        categories = np.array([utterance.speaker for utterance in utterances])
        rows = {name: np.flatnonzero(categories == name) for name in NOISE_CATEGORIES}
        return cls(
            {
                name: SoundFiles(
                    tuple(files.paths[row] for row in chosen), files.offsets[chosen], files.seconds[chosen]
                )
                for name, chosen in rows.items()
                if len(chosen)
            }
        )

    def fingerprint(self) -> str:
        """Changes whenever a plan would mean another noise."""
        return " ".join(f"{name} {files.fingerprint()}" for name, files in sorted(self.categories.items()))


@dataclass(frozen=True)
class ImpulseLibrary:
    """Room impulse responses; what the speakers of their data directory stand for (rooms, sizes) does not matter."""

    files: SoundFiles
    _ready: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    _found: dict[tuple[int, int], slice] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def build(cls, utterances: Sequence[Utterance], *, jobs: int = 1) -> ImpulseLibrary:
        """Take the utterances of a data directory, each an impulse response.

        Args:
            utterances: such as ``KaldiDir.utterances()``.
            jobs: files looked at at a time.

        Raises:
            UserError: files that cannot be used, or that are too long to be impulse responses.
        """
        return cls(
            SoundFiles.build(utterances, "augment.reverberation", SHORTEST_RESPONSE, LONGEST_RECORDING, jobs),
        )

    def __len__(self) -> int:
        return len(self.files)

    def response(self, index: int, sample_rate: int) -> np.ndarray:
        """One response as ``normalise_response`` makes it: float32, (taps,); not to be changed.

        Raises:
            UserError: no readable audio, or silence.
        """
        ready = self._ready.get((index, sample_rate))
        if ready is None:
            try:
                ready = self._read(index, sample_rate)
            except ValueError as error:
                raise UserError(f"{self.files.paths[index]}: {error}; re-create the file or drop it") from error
            if len(self) <= CACHED_RESPONSES:
                self._ready[index, sample_rate] = ready
        return ready

    def _read(self, index: int, sample_rate: int) -> np.ndarray:
        """Decode a response: the first time all of the file, for its direct path; from then on what is used of it."""
        found = self._found.get((index, sample_rate))
        if found is not None:
            stretch = self.files.read(index, found.start / sample_rate, found.stop - found.start, sample_rate)
            return normalise_response(stretch)
        whole = self.files.read_whole(index, sample_rate)
        found = find_response(whole, sample_rate)
        if len(self) > CACHED_RESPONSES and self._is_sliced_exactly(index, sample_rate):
            self._found[index, sample_rate] = found
        return normalise_response(whole[found])

    def _is_sliced_exactly(self, index: int, sample_rate: int) -> bool:
        """Whether a slice has the samples of the whole: where it is not converted and begins with its file."""
        return not self.files.offsets[index] and inspect_audio(self.files.paths[index]).sample_rate == sample_rate

    def fingerprint(self) -> str:
        """Changes whenever a plan would mean another room."""
        return f"rooms {self.files.fingerprint()}"
