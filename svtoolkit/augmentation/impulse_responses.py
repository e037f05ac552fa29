"""Room impulse responses (RIRs): the recordings of a data directory, made ready to send speech through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from svtoolkit.audio.inspection import inspect_audio
from svtoolkit.augmentation.sound_files import SoundFiles
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError

LONGEST_RESPONSE = 1.0
"""Seconds of a response, from its direct path on, that are used. A simulated room rarely rings longer; of a cathedral's
7 s the cut leaves out a seventh of the energy, and a third of the arithmetic for a crop of 2 s."""

DECAYED = 1e-6
"""Share of the energy, -60 dB, that may be left behind the end of a response: the decay that defines RT60."""

SHORTEST_RESPONSE, LONGEST_RECORDING = 0.001, 30.0
"""Seconds of the file of an impulse response; whatever is longer is no response but a recording of something."""

CACHED_RESPONSES = 512
"""A library of up to so many responses (32 MB of one second at 16 kHz) keeps them in memory."""


@dataclass(frozen=True)
class ImpulseLibrary:
    """Room impulse responses; what stands for speakers in their data directory, such as rooms, does not matter."""

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
        files = SoundFiles.build(utterances, "augment.reverberation", SHORTEST_RESPONSE, LONGEST_RECORDING, jobs)
        return cls(files)

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
        # A slice has the samples of the whole where it is not converted and begins with its file.
        path, offset = self.files.paths[index], self.files.offsets[index]
        if len(self) > CACHED_RESPONSES and not offset and inspect_audio(path).sample_rate == sample_rate:
            self._found[index, sample_rate] = found
        return normalise_response(whole[found])

    def fingerprint(self) -> str:
        """Changes whenever the same draw would be another response; its first word is that of runs begun earlier."""
        return f"rooms {self.files.fingerprint()}"


def find_response(recording: np.ndarray, sample_rate: int) -> slice:
    """The samples of a recorded room impulse response that are used, to be made ready by ``normalise_response``.

    Taps before the direct path, its strongest peak, are dropped, so that speech is not delayed. Behind it, the response
    ends where the energy still to come (Schroeder's backward integral, J. Acoust. Soc. Am. 37, 1965) is 60 dB below
    the whole, and after LONGEST_RESPONSE at the latest.

    Args:
        recording: (samples,).
        sample_rate: in Hz.

    Raises:
        ValueError: a response that is empty, silent or not finite.
    """
    magnitude = np.abs(recording)
    peak = int(magnitude.argmax()) if len(recording) else 0
    if not len(recording) or not 0 < magnitude[peak] < np.inf:  # argmax finds a NaN, too
        raise ValueError("the impulse response is empty, silent or not finite")
    tail = recording[peak : peak + max(1, round(LONGEST_RESPONSE * sample_rate))] / magnitude[peak]
    to_come = np.cumsum(np.square(tail[::-1], dtype=np.float64))  # from the end, so increasing
    return slice(peak, peak + len(tail) - int(np.searchsorted(to_come, DECAYED * to_come[-1])))


def normalise_response(response: np.ndarray) -> np.ndarray:
    """What ``find_response`` found, at energy 1: (taps,) that begin with the direct path -> float32, (taps,)."""
    kept = response / np.abs(response[0])
    return (kept / np.linalg.norm(kept)).astype(np.float32)
