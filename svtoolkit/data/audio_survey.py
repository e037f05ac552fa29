"""What the samples of a recording are like: decoded once from end to end, in blocks, so that any length fits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from svtoolkit.audio.files import open_audio
from svtoolkit.audio.inspection import AudioInfo
from svtoolkit.audio.shards.location import is_there
from svtoolkit.errors import UserError

BLOCK = 1 << 18
"""Samples decoded at a time."""

SILENCE_DBFS = -80.0
"""Speech never stays below this peak: about 3 steps of 16-bit audio. The offset from zero is taken off first."""


@dataclass
class Extent:
    """The lowest and the highest of some samples, and how many they are; NaN where one of them is NaN."""

    samples: int = 0
    low: float = math.inf
    high: float = -math.inf

    def include(self, samples: np.ndarray) -> None:
        if samples.size:
            self.samples += len(samples)
            # numpy's minimum, unlike Python's min, lets NaN through.
            self.low = float(np.minimum(self.low, samples.min()))
            self.high = float(np.maximum(self.high, samples.max()))

    @property
    def finite(self) -> bool:
        return not self.samples or (math.isfinite(self.low) and math.isfinite(self.high))

    @property
    def peak_dbfs(self) -> float:
        """Half the distance from lowest to highest sample, in dB relative to full scale; -inf if all are equal."""
        swing = (self.high - self.low) / 2
        return 20 * math.log10(swing) if swing > 0 else -math.inf


@dataclass
class Survey:
    """One recording.

    Attributes:
        info: what its header says; None if it could not be opened.
        samples: samples a channel that could be decoded.
        extents: key of each stretch -> its samples.
        problem: why it could not be opened or decoded to its end.
        missing: there is no such file.
    """

    info: AudioInfo | None = None
    samples: int = 0
    extents: dict[str, Extent] = field(default_factory=dict)
    problem: str | None = None
    missing: bool = False


def survey_recording(
    path: Path, stretches: Mapping[str, tuple[float, float | None]], channel: int | None = None
) -> Survey:
    """Decode a recording once.

    Args:
        path: the audio file.
        stretches: any key -> (start, end) in seconds, end None = to the end of the file.
        channel: channel that is looked at, counted from 0; all of them if None or if there is no such channel.

    Returns:
        what was found; a file that is missing or broken is no error here.
    """
    survey = Survey(extents={key: Extent() for key in stretches})
    if not is_there(path):  # Path.exists raises where a folder may not be entered
        survey.missing = True
        return survey
    try:
        with open_audio(path) as stream:
            survey.info = AudioInfo(stream.samplerate, stream.frames, stream.channels)
            bounds = [(key, *_to_samples(times, stream.samplerate)) for key, times in stretches.items()]
            wanted = slice(None) if channel is None or channel >= stream.channels else slice(channel, channel + 1)
            while len(block := stream.read(BLOCK, dtype="float32", always_2d=True)):
                _include(survey, bounds, block[:, wanted])
    except UserError as error:
        survey.problem = str(error)
    return survey


def _include(survey: Survey, bounds: Sequence[tuple[str, int, int | None]], block: np.ndarray) -> None:
    position = survey.samples
    survey.samples += len(block)
    for key, first, stop in bounds:
        if first < survey.samples and (stop is None or stop > position):
            last = len(block) if stop is None else stop - position
            survey.extents[key].include(block[max(first - position, 0) : last])


def _to_samples(times: tuple[float, float | None], sample_rate: int) -> tuple[int, int | None]:
    """Rounded as in ``read_audio``: start and length each to the nearest sample."""
    start, end = times
    first = round(start * sample_rate)
    return first, None if end is None else first + round((end - start) * sample_rate)


def explain_samples(samples: np.ndarray) -> str | None:
    """Why samples are no speech, as the end of a sentence about their file; None where nothing is wrong with them."""
    extent = Extent()
    extent.include(samples)
    if not extent.samples:
        return "holds no sample there"
    if not extent.finite:
        return "holds samples that are NaN or infinite"
    if extent.peak_dbfs < SILENCE_DBFS:
        return f"is silent: its peak is {extent.peak_dbfs:.0f} dBFS, expected {SILENCE_DBFS:.0f} or more"
    return None
