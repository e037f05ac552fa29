"""How much there is to hear: natural logarithms of seconds, since twice as much tells as much more at any length."""

from __future__ import annotations

import numpy as np

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.inspection import measure_durations
from svtoolkit.audio.voice_activity import measure_voice
from svtoolkit.audio.voice_network import RATE
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.scoring.quality.measured import Measured
from svtoolkit.system.threads import map_in_order

SHORTEST = 0.1
"""Seconds that count for less voice, and for none."""


def log_duration(measured: Measured) -> np.ndarray:
    """Of utt2dur or segments, else of the headers of the files."""
    unknown = {row: utterance.path for row, utterance in enumerate(measured.utterances) if utterance.duration is None}
    of_files = measure_durations(unknown, jobs=measured.jobs)
    seconds = [
        of_files[row] - utterance.offset if utterance.duration is None else utterance.duration
        for row, utterance in enumerate(measured.utterances)
    ]
    return np.log(np.maximum(seconds, SHORTEST))


def log_voice(measured: Measured) -> np.ndarray:
    """Of the voice that ``measure_voice`` hears, as the speech check of `svt verify` does."""

    def voice(utterance: Utterance) -> float:
        samples = read_audio(
            utterance.path,
            sample_rate=RATE,
            start=utterance.offset,
            duration=None if utterance.whole_file else utterance.duration,
            channel=measured.channel,
            resample=True,
        )
        return measure_voice(samples, RATE).voice

    seconds = list(map_in_order(voice, measured.utterances, measured.jobs))
    return np.log(np.maximum(seconds, SHORTEST))
