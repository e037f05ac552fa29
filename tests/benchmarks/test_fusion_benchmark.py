"""The benchmark of fusion on two small folds: who trains what, and that its table is what it found."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
import torch

from benchmarks import fusion as benchmark
from benchmarks.fusion import HEARD, OTHER_FOLDS, SYSTEMS
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import write_trials
from svtoolkit.scoring.embedding_file import write_embeddings

SPEAKERS = 44
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    """Two folds of 6 held-out speakers, of short noises and drawn embeddings."""
    folder = tmp_path_factory.mktemp("crossval")
    colours, voices = RNG.normal(size=(SPEAKERS, 12)), RNG.normal(size=(SPEAKERS, 8))
    everyone = KaldiDir()
    (folder / "wav").mkdir()
    for speaker in range(SPEAKERS):
        for number in range(4):
            name = f"s{speaker:02d}-{number}"
            samples = np.convolve(RNG.normal(size=1600), colours[speaker] + 0.3 * RNG.normal(size=12))
            soundfile.write(folder / "wav" / f"{name}.wav", samples / np.abs(samples).max() / 2, 16000)
            everyone.wav_scp[name], everyone.utt2spk[name] = str(folder / "wav" / f"{name}.wav"), f"s{speaker:02d}"
    for fold in (1, 2):
        held = {f"s{speaker:02d}" for speaker in range(6 * fold - 6, 6 * fold)}
        for side in ("train", "eval"):
            kept = [name for name, speaker in everyone.utt2spk.items() if (speaker in held) == (side == "eval")]
            everyone.subset(kept).write(folder / f"fold{fold}" / side)
            rows = np.array([voices[int(name[1:3])] + 0.8 * RNG.normal(size=8) for name in kept])
            (folder / f"fold{fold}" / "seed42" / "embeddings").mkdir(parents=True, exist_ok=True)
            write_embeddings(folder / f"fold{fold}" / "seed42" / "embeddings" / side, kept, rows)
        trials = make_trials(KaldiDir.read(folder / f"fold{fold}" / "eval").spk2utt, seed=0)
        write_trials(folder / f"fold{fold}" / "eval" / "trials", trials)
    return folder


@pytest.mark.parametrize("base", ["as-norm", "plda", "lda-as-norm", "cosine"])
def test_it_pools_the_folds_and_says_what_it_found(exp, tmp_path, capsys, monkeypatch, base):
    monkeypatch.setattr(benchmark, "TOP_N", 10)
    words = ["--exp", str(exp), "--resamples", "500", "--output", str(tmp_path / "f.json"), "--measures", "magnitude"]
    assert benchmark.main([*words, "--base", base]) == 0
    found = json.loads((tmp_path / "f.json").read_text())
    assert (found["folds"], found["speakers"], found["trials"]) == (["fold1", "fold2"], 12, 144)
    assert [(row["trained_with"], row["system"]) for row in found["results"]] == [
        (way, name) for way in (HEARD, OTHER_FOLDS) for name in SYSTEMS
    ]
    for row in found["results"]:
        assert 0 <= row["eer"] < 0.5
        assert row["min_cllr"] <= row["cllr"]
        alone = next(each for each in found["results"] if each["trained_with"] == row["trained_with"])
        if row is not alone:
            assert row["gain"] == pytest.approx(alone["eer"] - row["eer"], abs=1e-12)
    said = capsys.readouterr().out
    assert f"| trained with | {base}, | EER" in said
    assert "| heard speakers | with statistics | " in said
    assert found["base"] == base


def test_without_a_fold_it_says_so(tmp_path, capsys):
    assert benchmark.main(["--exp", str(tmp_path)]) == 1
    assert "no fold has embeddings of seed42" in capsys.readouterr().err


def test_an_unknown_system_is_named(exp, capsys):
    assert benchmark.main(["--exp", str(exp), "--base", "ldaa"]) == 1
    assert "--base" in capsys.readouterr().err
