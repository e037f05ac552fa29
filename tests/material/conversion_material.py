"""A data directory of short voices to be converted, and what is found in the converted one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import soundfile
from m4a_material import write_m4a
from speech_material import synthesise_voice

from svtoolkit.data.kaldi_dir import KaldiDir

RATE = 16000


def voice(speaker: int, number: int, seconds: float = 0.3) -> np.ndarray:
    return synthesise_voice(speaker, number, seconds).astype(np.float32)


def write_source(folder: Path, *, speakers: int = 3, utterances: int = 3, extension: str = "wav") -> Path:
    """A data directory of speakers s0, s1, ... of utterances s0-v-0, ..., with trials."""
    kaldi_dir = KaldiDir()
    for speaker in range(speakers):
        for number in range(utterances):
            name = f"s{speaker}-v-{number}"
            path = folder / "original" / f"s{speaker}" / "v" / f"{number}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples = voice(speaker, number, 0.2 + 0.01 * number)
            if extension == "m4a":
                write_m4a(path, samples)
            else:
                soundfile.write(path, samples, RATE)
            kaldi_dir.wav_scp[name] = str(path)
            kaldi_dir.utt2spk[name] = f"s{speaker}"
    kaldi_dir.write(folder)
    (folder / "trials").write_text("s0-v-0 s0-v-1 target\ns0-v-0 s1-v-0 nontarget\n")
    (folder / "trials_O").write_bytes(b"s1-v-0 s1-v-1  target\ns1-v-0 s2-v-0 nontarget")
    return folder


def contents(out: Path) -> dict[str, bytes]:
    """All files of a converted directory, whose paths are relative to it."""
    found = {}
    for path in sorted(file for file in out.rglob("*") if file.is_file()):
        found[str(path.relative_to(out))] = path.read_bytes().replace(os.fsencode(f"{out}/"), b"<out>/")
    return found


def audio_of(out: Path) -> list[Path]:
    return sorted(file for file in (out / "audio").rglob("*") if file.is_file())
