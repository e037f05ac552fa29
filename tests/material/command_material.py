"""Tiny speech-like data and a tiny released model for the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
import torch
from spoken import spoken

from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.cli import main
from svtoolkit.config import FeaturesConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import write_trials
from svtoolkit.models import build_model

RATE = 8000
BINS = 24


def voice(speaker: int, utterance: int, seconds: float) -> np.ndarray:
    """Float32, at RATE."""
    return spoken(speaker, utterance, seconds, RATE)


def write_audio(folder: Path, speakers: range, utterances: int) -> None:
    """folder/<speaker>/<speaker>-<number>.wav, of 0.9 s and a little more."""
    for speaker in speakers:
        (folder / f"s{speaker:02d}").mkdir(parents=True)
        for number in range(utterances):
            path = folder / f"s{speaker:02d}" / f"s{speaker:02d}-{number}.wav"
            soundfile.write(path, voice(speaker, number, 0.9 + 0.05 * (number % 2)), RATE)


def write_data(folder: Path, speakers: range, utterances: int = 4, *, trials: bool = False) -> Path:
    """A data directory with its audio in folder/wav."""
    write_audio(folder / "wav", speakers, utterances)
    kaldi_dir = KaldiDir()
    for path in sorted((folder / "wav").rglob("*.wav")):
        kaldi_dir.wav_scp[path.stem] = str(path)
        kaldi_dir.utt2spk[path.stem] = path.parent.name
        kaldi_dir.utt2dur[path.stem] = soundfile.info(path).duration
    kaldi_dir.write(folder)
    if trials:
        write_trials(folder / "trials", make_trials(kaldi_dir.spk2utt, seed=0))
    return folder


def write_model(folder: Path, seed: int = 0) -> Path:
    """A released model of random weights."""
    sizes = {"name": "resnet10", "num_bins": BINS, "embedding_dim": 16, "base_width": 4}
    torch.manual_seed(seed)
    network = build_model(**sizes)
    features = FeaturesConfig(sample_rate=RATE, num_bins=BINS)
    return write_released(folder, network.state_dict(), ModelDescription(sizes, features))


TRAIN_WORDS = [
    "model=resnet10", "model.base_width=4", "model.embedding_dim=16", "schedule=one_cycle", "margin_schedule=linear",
    f"features.num_bins={BINS}", f"features.sample_rate={RATE}", "data.crop_frames=40", "data.speeds=[1.0]",
    "data.num_workers=0", "validation.speakers=2", "trainer.epochs=2", "trainer.batch_size=8", "trainer.threads=1",
    "trainer.log_steps=1", "optim.lr=0.02", "schedule.warmup=0.25", "schedule.start_factor=0.05",
    "margin_schedule.start=0.5", "margin_schedule.end=1", "seed=3",
]  # fmt: skip


def said(capsys, *words: object) -> str:
    """What a command that fails prints; an exception other than those that become sentences fails the test."""
    assert main([str(word) for word in words]) == 1
    captured = capsys.readouterr()
    return captured.err + captured.out
