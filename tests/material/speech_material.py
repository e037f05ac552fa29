"""A small corpus of synthetic voices: every speaker has a pitch and a spectral envelope of his own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from svtoolkit.data.kaldi_dir import KaldiDir

RATE = 16000
SPEAKERS, UTTERANCES = 8, 6
SECONDS = (0.5, 0.9)
"""Shortest and longest utterance."""


def synthesise_voice(speaker: int, utterance: int, seconds: float) -> np.ndarray:
    """float64 samples below 1: harmonics of the speaker's pitch under his envelope, in noise; (seconds * RATE,)."""
    envelope = np.random.default_rng([17, speaker]).uniform(0.05, 1.0, 20)
    rng = np.random.default_rng([17, speaker, utterance])
    pitch = (90.0 + 23.0 * speaker) * rng.uniform(0.97, 1.03)
    time = np.arange(round(seconds * RATE)) / RATE
    voice = np.zeros_like(time)
    for number, weight in enumerate(envelope, start=1):
        voice += weight * np.sin(2 * np.pi * (number * pitch * time + rng.random()))
    loudness = 0.6 + 0.4 * np.sin(2 * np.pi * rng.uniform(2, 4) * time)
    voice = loudness * voice / np.abs(voice).max() + 0.02 * rng.standard_normal(len(time))
    return 0.3 * voice


def write_speech(
    folder: Path,
    *,
    speakers: int = SPEAKERS,
    utterances: int = UTTERANCES,
    voice: Callable[[int, int, float], np.ndarray] = synthesise_voice,
) -> Path:
    """FLAC files and a data directory without segments; returns the directory.

    Args:
        voice: of a speaker, an utterance and seconds; the speech check hears that of ``spoken`` alone.
    """
    kaldi_dir = KaldiDir()
    for speaker in range(speakers):
        for utterance in range(utterances):
            name = f"spk{speaker}-utt{utterance}"
            seconds = float(np.random.default_rng([18, speaker, utterance]).uniform(*SECONDS))
            samples = voice(speaker, utterance, seconds)
            path = folder / "audio" / f"{name}.flac"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, samples, RATE, subtype="PCM_16")
            kaldi_dir.wav_scp[name] = str(path)
            kaldi_dir.utt2spk[name] = f"spk{speaker}"
            kaldi_dir.utt2dur[name] = len(samples) / RATE
    kaldi_dir.write(folder / "data")
    return folder / "data"


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the corpus; not to be changed."""
    return write_speech(tmp_path_factory.mktemp("speech"))
