"""The benchmark of 8-bit files: its rows, and that it can see a difference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from benchmarks import int8_eer
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.config import FeaturesConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.models import build_model

pytest.importorskip("openvino")

RATE = 8000


@pytest.fixture
def fold(tmp_path: Path) -> list[str]:
    """A model of random weights, recordings to calibrate on, and others of six speakers with all their trials."""
    torch.manual_seed(0)
    sizes = {"name": "resnet10", "num_bins": 24, "embedding_dim": 16, "base_width": 4}
    network = build_model(**sizes).train()
    with torch.no_grad():
        network(torch.randn(4, 80, 24))
    write_released(
        tmp_path / "model", network.state_dict(), ModelDescription(sizes, FeaturesConfig(sample_rate=RATE, num_bins=24))
    )
    for folder, speakers in (("train", 3), ("eval", 6)):
        speaker_of = {f"{folder}{number // 3}-{number}": f"{folder}{number // 3}" for number in range(3 * speakers)}
        for number, name in enumerate(speaker_of):
            noise = np.random.default_rng(number).standard_normal(RATE // 2)
            tone = np.sin(np.arange(RATE // 2) * (0.2 + 0.05 * (number // 3)))
            soundfile.write(tmp_path / f"{name}.wav", 0.1 * tone + 0.05 * noise, RATE)
        KaldiDir({name: str(tmp_path / f"{name}.wav") for name in speaker_of}, speaker_of).write(tmp_path / folder)
    names = list(speaker_of)
    lines = [
        f"{a} {b} {'target' if speaker_of[a] == speaker_of[b] else 'nontarget'}\n"
        for place, a in enumerate(names)
        for b in names[:place]
    ]
    (tmp_path / "eval" / "trials").write_text("".join(lines))
    return [str(tmp_path / name) for name in ("model", "train", "eval")]


def test_rows(fold, tmp_path):
    output = tmp_path / "int8.json"
    words = ["--output", str(output), "--fold", *fold, "--utterances", "4", "--resamples", "100"]
    assert int8_eer.main(words) == 0
    record = json.loads(output.read_text())
    assert "--fold MODEL TRAIN EVAL" in record["command"]
    systems = ["torch fp32", *int8_eer.SYSTEMS]
    assert [(row["trials"], row["system"]) for row in record["rows"]] == [
        (trials, system) for trials in int8_eer.LISTS for system in systems
    ]
    first, whole, narrow, _ = record["rows"][:4]
    assert (first["targets"], first["nontargets"], record["speakers"]) == (18, 135, 6)
    assert (whole["eer"], whole["difference"], whole["least_cosine"]) == (first["eer"], 0, 1)
    assert 0.9 < narrow["least_cosine"] < 1


def test_a_system_that_is_worse_is_seen():
    rng = np.random.default_rng(0)
    speakers = {f"u{number}": f"s{number // 4}" for number in range(40)}
    names = list(speakers)
    pairs = [(a, b, speakers[a] == speakers[b]) for place, a in enumerate(names) for b in names[:place]]
    trials = int8_eer.Trials.of(pairs)
    good = trials.target + rng.normal(0, 0.3, len(pairs))
    scores = np.stack([good, good, good + rng.normal(0, 0.5, len(pairs)), good])
    fold = int8_eer.Fold(
        speakers, dict.fromkeys(int8_eer.LISTS, trials), dict.fromkeys(int8_eer.LISTS, scores), np.ones((4, 40))
    )
    _, same, worse, _ = int8_eer.summarise([fold], 100)[:4]
    assert same["relative_interval"] == [0, 0]
    assert worse["relative_interval"][0] > 0.5
    assert worse["most_score"] > 0.5
