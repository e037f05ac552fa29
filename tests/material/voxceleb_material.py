"""VoxCeleb1, VoxCeleb2, MUSAN and RIRS_NOISES in miniature, as the archives unpack, and the recipe run on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import soundfile
from m4a_material import write_m4a
from paths import ROOT
from speech_material import RATE, synthesise_voice

RUN = ROOT / "recipes" / "voxceleb" / "run.sh"

VOX2_DEV = ("id00012", "id00015", "id00018", "id00022", "id00026", "id00053")
VOX2_TEST = "id00017"
VOX1_DEV = ("id10001", "id10002")
VOX1_TEST = ("id10270", "id10271", "id10272")
VIDEOS = ("-21Uxsk56VD", "2DLq_Kkc1r8")
ONE_LIST = "one's list"
LISTS = {"veri_mini.txt": VOX1_TEST, "all_mini.txt": VOX1_DEV + VOX1_TEST}


def write_corpora(folder: Path) -> None:
    """vox1, vox2, musan, rirs and trials in a folder, and the shorter of the two lists alone."""
    for number, speaker in enumerate(VOX2_DEV):
        for path, samples in _speech(folder / "vox2" / "dev" / "aac" / speaker, number, 4):
            write_m4a(path.with_suffix(".m4a"), samples)
    write_m4a(folder / "vox2" / "test" / "aac" / VOX2_TEST / VIDEOS[0] / "00001.m4a", synthesise_voice(20, 0, 0.8))
    for part, speakers, first in (("dev", VOX1_DEV, 10), ("test", VOX1_TEST, 12)):
        for number, speaker in enumerate(speakers, start=first):
            for path, samples in _speech(folder / "vox1" / part / "wav" / speaker, number, 4):
                _write(path.with_suffix(".wav"), samples)
    _write_musan(folder / "musan")
    _write_rirs(folder / "RIRS_NOISES")
    (folder / "trials").mkdir()
    for name, speakers in LISTS.items():
        (folder / "trials" / name).write_text("".join(f"{line}\n" for line in _trials(speakers)))
    (folder / ONE_LIST).mkdir()
    shutil.copy(folder / "trials" / "veri_mini.txt", folder / ONE_LIST)


def _speech(folder: Path, voice: int, utterances: int) -> list[tuple[Path, np.ndarray]]:
    """Paths without suffix, two a video, and samples of 0.7 to 1 s."""
    return [
        (folder / VIDEOS[number % 2] / f"{number:05d}", synthesise_voice(voice, number, 0.7 + 0.1 * (number % 4)))
        for number in range(utterances)
    ]


def _write(path: Path, samples: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE, subtype="PCM_16")


def _write_musan(folder: Path) -> None:
    rng = np.random.default_rng(1)
    for category, source in (("noise", "free-sound"), ("music", "fma"), ("speech", "librivox")):
        for number in range(3):
            samples = synthesise_voice(40 + number, number, 1.2) + 0.1 * rng.standard_normal(round(1.2 * RATE))
            _write(folder / category / source / f"{category}-{source}-{number:04d}.wav", samples)


def _write_rirs(folder: Path) -> None:
    rng = np.random.default_rng(2)
    decay = np.exp(-np.arange(2000) / 300)
    for room in ("smallroom", "mediumroom", "largeroom"):
        response = 0.3 * decay * rng.standard_normal(2000)
        response[40] = 0.9
        _write(folder / "simulated_rirs" / room / "Room001" / "Room001-00001.wav", response)
    real = folder / "real_rirs_isotropic_noises"
    _write(real / "RWCP_type1_rir_circle_e1.wav", 0.3 * decay[:, None] * rng.standard_normal((2000, 2)))
    _write(real / "RVB2014_type1_noise_largeroom1_1.wav", 0.1 * rng.standard_normal((2000, 2)))
    line = "--rir-id 00001 --room-id RWCP RIRS_NOISES/real_rirs_isotropic_noises/RWCP_type1_rir_circle_e1.wav\n"
    (real / "rir_list").write_text(line)


def _trials(speakers: tuple[str, ...]) -> list[str]:
    """All pairs, in the form of the official lists."""
    files = [f"{speaker}/{VIDEOS[number % 2]}/{number:05d}.wav" for speaker in speakers for number in range(4)]
    return [f"{int(one[:7] == other[:7])} {one} {other}" for one, other in combinations(files, 2)]


def command(corpora: Path, *arguments: object) -> list[str]:
    folders = {"vox1": "vox1", "vox2": "vox2", "musan": "musan", "rirs": "RIRS_NOISES"}
    given = [f"--{name}={corpora / folder}" for name, folder in folders.items() if f"--{name}" not in arguments]
    return ["bash", str(RUN), "--nj", "1", *given, *map(str, arguments)]


def environment() -> dict[str, str]:
    """The recipe in the environment that runs the tests."""
    return {**os.environ, "SVT_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}


def recipe(corpora: Path | None, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run it on unpacked corpora, or, without any, on what the arguments say."""
    own = ["bash", str(RUN), "--nj", "1", *map(str, arguments)]
    words = own if corpora is None else command(corpora, *arguments)
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=280, check=False)
    if check:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def one_list(corpora: Path) -> list[str]:
    """Options: the shorter of the two lists alone."""
    return ["--trials", str(corpora / ONE_LIST), "--other-trials"]
