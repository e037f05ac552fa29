"""A data directory some of whose files are bad, each in its way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from speech_material import RATE

from svtoolkit.data.kaldi_dir import KaldiDir


def write_bad(path: Path, kind: str, seconds: float = 0.7) -> Path:
    """A file that is silent, nan, zeros (silent, too), broken, or is not there: gone."""
    samples = np.zeros(round(seconds * RATE))
    if kind == "silent":
        samples[::2] = 1e-5
    elif kind == "nan":
        samples[:] = np.nan
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "broken":
        path.write_bytes(b"no audio")
    elif kind != "gone":
        soundfile.write(path, samples, RATE, subtype="FLOAT")
    return path


def with_bad_files(source: Path, folder: Path, bad: dict[str, str]) -> Path:
    """A copy of a data directory: utterance -> kind of its file."""
    kaldi_dir = KaldiDir.read(source)
    for utterance, kind in bad.items():
        kaldi_dir.wav_scp[utterance] = str(write_bad(folder / "audio" / f"{utterance}.wav", kind))
    kaldi_dir.write(folder / "data")
    return folder / "data"
