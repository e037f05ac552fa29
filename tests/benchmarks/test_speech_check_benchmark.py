"""The benchmark of the speech check on a few seconds of its own kinds of sound."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from spoken import spoken

from benchmarks import speech_check
from benchmarks.speech_check import RATE, main
from svtoolkit.data.kaldi_dir import KaldiDir


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two speakers of a recording each, a noise, a tone for music, and a room."""
    folder = tmp_path / "data"
    noise = 0.1 * np.random.default_rng(2).standard_normal(2 * RATE)
    sounds = {
        "musan_mini/noise/n": noise,
        "musan_mini/music/m": 0.1 * np.sin(np.arange(2 * RATE) / 5),
        "musan_mini/speech/s": spoken(1, 0, 2.0),
        "rirs/r": np.eye(1, 800)[0],
    }
    for number, corpus in enumerate(("speechocean762", "librispeech_mini")):
        sounds[f"{corpus}/wav/a-1"] = spoken(2 + number, 0, 2.5)
    for name, samples in sounds.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{name}.flac", np.clip(samples, -1, 1), RATE)
    for corpus in ("speechocean762", "librispeech_mini"):
        KaldiDir(wav_scp={"a-1": f"{folder}/{corpus}/wav/a-1.flac"}, utt2spk={"a-1": "a"}).write(
            folder / corpus / "eval"
        )
    return folder


def test_counts_and_record(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("silences", 3), ("made_up", 4)):
        make = getattr(speech_check, name)
        monkeypatch.setattr(speech_check, name, lambda rng, make=make, most=most: itertools.islice(make(rng), most))
    output = tmp_path / "speech_check.json"
    assert main(["--data", str(data), "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    assert str(data) not in output.read_text()
    found = {row["what"]: row for row in record["results"]}
    for name, clips in (
        ("silence", 3),
        ("made-up noise, hum, clicks", 4),
        ("musan_mini/noise", 1),
        ("musan_mini/music, not sung", 1),
    ):
        assert (found[name]["clips"], found[name]["refused"]) == (clips, clips), name
    assert found["less than 0.3 s of voice"]["refused"] == 2
    for name in ("speechocean762", "librispeech_mini", "musan_mini/speech", "at 8 kHz", "40 dB quieter"):
        assert found[name]["refused"] == 0, name
        assert found[name]["clips"] >= 1
