"""Small data directories and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

RATE = 16000
SAMPLES = 2400
SPEAKERS = ("ann", "bob", "cid")
UTTERANCES = tuple(f"{speaker}-{number}" for speaker in SPEAKERS for number in (1, 2, 3))


def write_noise(
    path: Path, samples: int = SAMPLES, rate: int = RATE, channels: int = 1, level: float = 0.1, **options: Any
) -> Path:
    """Noise that differs from file to file and is the same on every run."""
    if path.suffix == ".mp3" and "MP3" not in soundfile.available_formats():
        pytest.skip("this libsndfile is too old for MP3, a format whose header survives a cut")
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(path.name.encode()))
    noise = level * rng.uniform(-1, 1, (samples, channels))
    soundfile.write(path, noise.squeeze(1) if channels == 1 else noise, rate, **options)
    return path


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make_directory(base: Path) -> Path:
    """Three speakers with three recordings of 0.15 s each; audio in base/audio, tables in base/data."""
    data = base / "data"
    for utterance in UTTERANCES:
        write_noise(base / "audio" / f"{utterance}.wav")
    write_lines(data / "wav.scp", [f"{utt} {base}/audio/{utt}.wav" for utt in UTTERANCES])
    write_lines(data / "utt2dur", [f"{utt} {SAMPLES / RATE}" for utt in UTTERANCES])
    write_speakers(data)
    return data


def make_segmented_directory(base: Path) -> Path:
    """The same three speakers, each in one recording of 0.6 s: two segments with an end, one up to the end."""
    data = base / "data"
    for speaker in SPEAKERS:
        write_noise(base / "audio" / f"{speaker}.flac", 4 * SAMPLES)
    write_lines(data / "wav.scp", [f"tape-{speaker} {base}/audio/{speaker}.flac" for speaker in SPEAKERS])
    times = ("0.0 0.15", "0.1500625 0.3", "0.3 -1")
    write_lines(data / "segments", [f"{utt} tape-{utt[:3]} {times[int(utt[-1]) - 1]}" for utt in UTTERANCES])
    write_speakers(data)
    return data


def write_speakers(data: Path) -> None:
    write_lines(data / "utt2spk", [f"{utt} {utt[:3]}" for utt in UTTERANCES])
    write_lines(data / "spk2utt", [f"{spk} {spk}-1 {spk}-2 {spk}-3" for spk in SPEAKERS])
    write_lines(data / "spk2gender", [f"{spk} {gender}" for spk, gender in zip(SPEAKERS, "fmm", strict=True)])
    write_lines(data / "utt2lang", [f"{utt} en" for utt in UTTERANCES])
    trials = [f"{spk}-1 {spk}-{other} target" for spk in SPEAKERS for other in (2, 3)]
    trials += [f"{one}-{n} {two}-{n} nontarget" for one, two in (("ann", "bob"), ("bob", "cid")) for n in (1, 2, 3)]
    write_lines(data / "trials", trials)
