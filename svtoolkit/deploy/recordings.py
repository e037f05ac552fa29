"""Recordings that an export is calibrated and compared on: the user's, or a few that are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.formats import is_audio
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.errors import UserError

MADE_SECONDS = (0.9, 1.6, 2.3, 3.1, 4.0, 5.2)

SILENCED_EVERY, SILENCED_SHARE = 4, 0.25
"""Of recordings that calibrate, and of the samples of one."""


@dataclass(frozen=True)
class Recording:
    """Samples in [-1, 1] at the model's rate, (samples,) float32, and what they are called."""

    name: str
    samples: np.ndarray


def read_recordings(
    path: str, *, sample_rate: int, most: int | None = None, root: str | None = None, resample: bool = False
) -> list[Recording]:
    """Those of a data directory or its wav.scp, of a folder of audio files, or one file.

    Args:
        most: so many, evenly over the list; None: all.
        root: folder that relative paths of wav.scp are taken from.
        resample: convert audio of another rate instead of refusing it.

    Raises:
        UserError: nothing there, or audio that cannot be read.
    """
    utterances = _listed(Path(path), root)
    if not utterances:
        raise UserError(f"{path}: holds no audio; expected a data directory, its wav.scp, or a folder of audio files")
    return [
        Recording(
            each.utterance_id,
            read_audio(
                each.path,
                sample_rate=sample_rate,
                start=each.offset,
                duration=None if each.whole_file else each.duration,
                resample=resample,
            ),
        )
        for each in (utterances if most is None else evenly(utterances, most))
    ]


def evenly(utterances: Sequence[Utterance], most: int) -> Sequence[Utterance]:
    """So many, evenly over the list; all where there are no more."""
    if len(utterances) <= most:
        return utterances
    return [utterances[place] for place in np.linspace(0, len(utterances) - 1, most).round().astype(int)]


def with_digital_silence(recordings: Sequence[Recording]) -> list[Recording]:
    """Recordings, and behind them every fourth once more with zeros in its middle.

    Noise gates and codecs leave zeros. Their logarithmic energies lie far below those of anything that a microphone
    hears, and all else lies above the mean by as much more: 8 bits that have seen no zeros would saturate.
    """
    return [*recordings, *map(_silenced, recordings[::SILENCED_EVERY])]


def _silenced(recording: Recording) -> Recording:
    samples = recording.samples.copy()
    share = round(SILENCED_SHARE * len(samples))
    begin = (len(samples) - share) // 2
    samples[begin : begin + share] = 0
    return Recording(f"{recording.name}, with digital silence", samples)


def _listed(path: Path, root: str | None) -> Sequence[Utterance]:
    folder = path.parent if path.name == "wav.scp" else path
    if (folder / "wav.scp").is_file():
        return KaldiDir.read(folder, root, "files").utterances()
    files = sorted(file for file in path.rglob("*") if is_audio(file)) if path.is_dir() else [path]
    return [Utterance(str(file), "", file) for file in files]


def made_recordings(sample_rate: int) -> list[Recording]:
    """Harmonics of a pitch in noise, louder and softer as syllables are; always the same."""
    made = []
    for number, seconds in enumerate(MADE_SECONDS):
        rng = np.random.default_rng(number)
        times = np.arange(round(seconds * sample_rate)) / sample_rate
        phase = 2 * np.pi * np.cumsum((90 + 31 * number) * (1 + 0.1 * np.sin(2 * np.pi * 1.3 * times))) / sample_rate
        tone = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 12))
        tone = tone * (0.55 + 0.45 * np.sin(2 * np.pi * 3.5 * times - 1.5))
        samples = 0.08 * tone + 0.004 * rng.standard_normal(len(times))
        made.append(Recording(f"made-{number}", np.clip(samples, -1, 1).astype(np.float32)))
    return made
