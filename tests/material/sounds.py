"""Small libraries of noises and impulse responses, the changes that draw from them, and levels to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import soundfile
from paths import SHARED

from svtoolkit.augmentation.augmenter import Augmenter
from svtoolkit.augmentation.build import build_augmenter
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import NoiseLibrary
from svtoolkit.config import AugmentConfig
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance

RATE = 16000
DATA = SHARED / "data"


def write_sound(folder: Path, name: str, samples: np.ndarray, rate: int = RATE) -> Path:
    """As 32-bit float, which keeps every sample as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.wav"
    soundfile.write(path, samples, rate, subtype="FLOAT")
    return path


def utterance(path: Path, speaker: str, **fields) -> Utterance:
    return Utterance(path.stem, speaker, path, **fields)


def hiss(samples: int, *seed: int, level: float = 0.1) -> np.ndarray:
    """White noise, float32."""
    return (level * np.random.default_rng([1, *seed]).standard_normal(samples)).astype(np.float32)


def decaying(samples: int, *seed: int, delay: int = 0, rt60: float = 0.3) -> np.ndarray:
    """A room impulse response: silence, a direct path, noise that decays by 60 dB in ``rt60`` seconds."""
    tail = 0.3 * np.random.default_rng([2, *seed]).uniform(-1, 1, samples - delay)
    tail *= 10 ** (-3 * np.arange(samples - delay) / RATE / rt60)
    tail[0] = 0.9
    return np.concatenate([np.zeros(delay), tail]).astype(np.float32)


def noise_utterances(folder: Path, seconds: Mapping[str, list[float]]) -> list[Utterance]:
    """A file of white noise for every duration, by category."""
    return [
        utterance(write_sound(folder, f"{category}-{number}", hiss(round(length * RATE), number)), category)
        for category, lengths in seconds.items()
        for number, length in enumerate(lengths)
    ]


def small_noises(folder: Path) -> NoiseLibrary:
    lengths = {"noise": [0.5, 1.0, 2.0], "music": [1.5, 3.0], "speech": [0.6 + 0.2 * number for number in range(9)]}
    return NoiseLibrary.build(noise_utterances(folder, lengths))


def small_rirs(folder: Path) -> ImpulseLibrary:
    shapes = [(4000, 0), (1200, 100), (9000, 37)]
    files = [write_sound(folder, f"rir-{n}", decaying(size, n, delay=delay)) for n, (size, delay) in enumerate(shapes)]
    return ImpulseLibrary.build([utterance(path, "small") for path in files])


def augmenter_of(
    noises: NoiseLibrary | None = None, rirs: ImpulseLibrary | None = None, *, sample_rate: int = RATE, **keys
) -> Augmenter:
    """The changes that these keys of the group ``augment`` ask for."""
    return build_augmenter(AugmentConfig(**keys), noises, rirs, sample_rate=sample_rate)


def power_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


def shared_utterances(name: str) -> list[Utterance]:
    """Of the real data beside the repository; the folder of a noise is its category."""
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: real noises and impulse responses are not beside the repository")
    kaldi_dir = KaldiDir(root=DATA)
    for line in (folder / "wav.scp").read_text().splitlines():
        key, location = line.split()
        kaldi_dir.wav_scp[key] = location
        kaldi_dir.utt2spk[key] = Path(location).parent.name
    return kaldi_dir.utterances()
