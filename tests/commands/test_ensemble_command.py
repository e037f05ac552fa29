"""svt ensemble: released models as one, alone and within a cross-validation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from command_material import BINS, RATE, TRAIN_WORDS, said, write_data

import svtoolkit
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.cli import main
from svtoolkit.config import FeaturesConfig
from svtoolkit.data.trials import read_trials
from svtoolkit.models import build_model
from svtoolkit.scoring.score_file import align_scores

torch.set_num_threads(1)


def write_model(folder: Path, seed: int, *, name: str = "resnet10", **features: object) -> Path:
    """Of random weights, with a threshold."""
    torch.manual_seed(seed)
    sizes = {"name": name, "num_bins": BINS, "embedding_dim": 16}
    front_end = FeaturesConfig(**{"sample_rate": RATE, "num_bins": BINS, **features})
    description = ModelDescription(sizes, front_end, {"seed": seed, "command": "svt"}, {"threshold": 0.3})
    return write_released(folder, build_model(**sizes).state_dict(), description)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [write_model(folder / name, seed) for seed, name in enumerate(("a", "b"))]


def test_it_is_a_model_like_any_other(tmp_path, models, capsys):
    out = tmp_path / "both"
    assert main(["ensemble", f"models=[{models[0]},{models[1]}]", f"out={out}"]) == 0
    told = capsys.readouterr().out
    assert f"2 networks (resnet10, resnet10) -> {out}, embeddings of 32" in told
    assert "and so is the threshold" in told
    described = yaml.safe_load((out / "model.yaml").read_text())
    assert [member["seed"] for member in described["training"]["members"]] == [0, 1]
    assert described["training"]["members"][0]["model"] == str(models[0])
    assert described["verification"] == {}
    sounds = np.random.default_rng(0).standard_normal((2, RATE)).astype(np.float32) * 0.1
    whole, *parts = (svtoolkit.load_model(each, device="cpu") for each in (out, *models))
    cosines = [
        float(np.dot(*(each.embed(sound) / np.linalg.norm(each.embed(sound)) for sound in sounds))) for each in parts
    ]
    found = [whole.embed(sound) for sound in sounds]
    assert float(np.dot(*found)) == pytest.approx(np.mean(cosines), abs=1e-5)
    assert whole.threshold is None
    assert main(["export", str(out), str(tmp_path / "both.onnx")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("[{a}]", "expected two released models or more, models=[A,B]"),
        ("[{a},{b},{a}]", "{a}: is the same model as {a}, and adds nothing to it"),
        ("[{a},{wide}]", "{wide}: its features have window='povey', and those of {a} window='hamming'"),
        ("[{a},{b}/none]", "{b}/none"),
        ("[{a},{stretches}]", "member 2 is ge2e_lstm"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path, models, capsys, words, message):
    a, b = models
    names = {"a": a, "b": b, "wide": tmp_path / "wide", "stretches": tmp_path / "stretches"}
    write_model(names["wide"], 2, window="povey")
    write_model(names["stretches"], 2, name="ge2e_lstm")
    out = tmp_path / "out"
    text = said(capsys, "ensemble", f"models={words.format(**names)}", f"out={out}")
    assert text.startswith("error: ")
    assert message.format(**names) in text
    assert not out.exists()


def test_what_is_there_stays(tmp_path, models, capsys):
    text = said(capsys, "ensemble", f"models=[{models[0]},{models[1]}]", f"out={models[0]}")
    assert f"{models[0]}: is there already" in text


def test_a_cross_validation_scores_the_ensemble_of_its_seeds(tmp_path, capsys):
    speech, out = write_data(tmp_path / "speech", range(8), 3), tmp_path / "cv"
    words = [
        *TRAIN_WORDS,
        "trainer.epochs=1",
        "data.crop_frames=20",
        "validation.speakers=0",
        "folds=2",
        "resamples=50",
    ]
    words = ["crossval", *words, f"data.train={speech}", f"exp_dir={out}"]
    assert "ensemble=true is of several networks, and seeds is [3]" in said(
        capsys, *words, "seeds=[3]", "ensemble=true"
    )
    assert main([*words, "seeds=[3,4]"]) == 0
    before = json.loads((out / "crossval.json").read_text())
    assert "ensemble" not in before
    capsys.readouterr()
    assert main([*words, "seeds=[3,4]", "ensemble=true"]) == 0  # nothing is trained again
    told = capsys.readouterr().out
    assert "fold 1, seed 3: finished before" in told
    content = json.loads((out / "crossval.json").read_text())
    assert content["pooled"] == before["pooled"]
    assert [(one["fold"], one["seed"]) for one in content["folds"][-2:]] == [(1, None), (2, None)]
    assert content["folds"][-1]["epochs"] == 2
    rate = f"{100 * content['ensemble']['cosine']['eer']:.2f}"
    assert f"ensemble, cosine: EER {rate} %" in told
    for number in (1, 2):
        fold = out / f"fold{number}"
        trials = read_trials(fold / "eval" / "trials")
        ours, *theirs = (
            align_scores(trials, fold / name / "scores" / "cosine") for name in ("ensemble-3-4", "seed3", "seed4")
        )
        np.testing.assert_allclose(ours, np.mean(theirs, axis=0), rtol=0, atol=1e-5)
    pooled = read_trials(out / "ensemble" / "eval" / "trials")
    assert len(pooled) == sum(len(read_trials(out / f"fold{number}" / "eval" / "trials")) for number in (1, 2))
