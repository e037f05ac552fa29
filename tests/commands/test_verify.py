from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from svtoolkit import load_model
from svtoolkit.cli import main


@pytest.fixture
def audio(eval_dir) -> tuple[str, str]:
    return eval_dir.wav_scp["s20-0"], eval_dir.wav_scp["s21-0"]


def verify(model: Path, *words: str) -> int:
    return main(["verify", str(model), *words])


def test_without_a_threshold_there_is_a_score_and_no_decision(model, audio, capsys):
    assert verify(model, *audio) == 0
    score = load_model(model).similarity(*audio)
    assert capsys.readouterr().out == (
        f"score {score:.4f}\n"
        "no decision: the model has no threshold; give threshold=... or store one with `svt evaluate`\n"
    )


def test_a_score_exactly_at_the_threshold_accepts(model, audio, capsys):
    score = load_model(model).similarity(*audio)
    assert verify(model, *audio, f"threshold={score!r}") == 0
    assert capsys.readouterr().out == f"score {score:.4f}\nsame speaker (threshold {score:.4f})\n"


def test_a_score_just_below_the_threshold_rejects(model, audio, capsys):
    threshold = load_model(model).similarity(*audio) + 1e-9
    assert verify(model, *audio, f"threshold={threshold!r}") == 0
    assert "different speakers (threshold " in capsys.readouterr().out


def test_a_negative_threshold(model, audio, capsys):
    assert verify(model, *audio, "threshold=-0.5") == 0
    assert capsys.readouterr().out.endswith("(threshold -0.5000)\n")


def test_a_recording_is_its_own_speaker(model, audio, capsys):
    assert verify(model, audio[0], audio[0], "threshold=0.999") == 0
    assert capsys.readouterr().out == "score 1.0000\nsame speaker (threshold 0.9990)\n"


def test_evaluate_stores_the_threshold_that_verify_decides_by(tmp_path, model, embeddings, eval_data, eval_dir, capsys):
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    scores, trials = str(tmp_path / "scores"), str(eval_data / "trials")
    main(["score", "--trials", trials, "--embeddings", str(embeddings / "eval.scp"), "--out", scores])
    words = ["--scores", scores, "--trials", trials, "--store-threshold", str(copy), "--name", "tiny"]
    assert main(["evaluate", *words]) == 0
    result = json.loads(Path(f"{scores}.json").read_text())
    stored = yaml.safe_load((copy / "model.yaml").read_text())["verification"]
    assert stored == {
        "threshold": result["eer_threshold"],
        "eer": result["eer"],
        "evaluation": "tiny",
        "trials_sha256": result["trials_sha256"],
    }
    assert load_model(copy).threshold == result["eer_threshold"]
    capsys.readouterr()
    decisions = set()
    for line in Path(scores).read_text().splitlines()[::5]:
        enrol, test, score = line.split()
        assert verify(copy, eval_dir.wav_scp[enrol], eval_dir.wav_scp[test]) == 0
        said = "same speaker" if float(score) >= result["eer_threshold"] else "different speakers"
        decisions.add(said)
        assert capsys.readouterr().out == (
            f"score {float(score):.4f}\n{said} (threshold {result['eer_threshold']:.4f})\n"
        )
    assert decisions == {"same speaker", "different speakers"}


def test_a_given_threshold_comes_before_the_stored_one(tmp_path, model, audio, capsys):
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    description = yaml.safe_load((copy / "model.yaml").read_text())
    description["verification"] = {"threshold": 0.25}
    (copy / "model.yaml").write_text(yaml.safe_dump(description))
    assert verify(copy, *audio, "--threshold", "0.75") == 0
    assert capsys.readouterr().out.endswith("(threshold 0.7500)\n")
    assert verify(copy, *audio) == 0
    assert capsys.readouterr().out.endswith("(threshold 0.2500)\n")


def test_what_cannot_be_compared(tmp_path, model, audio, capsys):
    assert verify(model, audio[0], str(tmp_path / "none.wav")) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/none.wav: ")
    assert verify(tmp_path, *audio) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/model.yaml: there is no such file")
    assert verify(model, audio[0]) == 1
    assert capsys.readouterr().err == "error: svt verify: required and not given: test; add test=...\n"
