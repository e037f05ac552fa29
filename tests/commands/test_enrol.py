"""svt enrol, identify, enrolled, forget, and verify against a speaker of a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
from command_material import RATE, said, voice, write_model

from svtoolkit import load_model
from svtoolkit.checkpoints.model_digest import model_digest
from svtoolkit.cli import main
from svtoolkit.enrolment.store import SpeakerStore


@pytest.fixture(scope="module")
def wavs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Recordings by speaker and number, as a0."""
    folder = tmp_path_factory.mktemp("wavs")
    for number, name in enumerate("ab"):
        for take in range(3):
            soundfile.write(folder / f"{name}{take}.wav", voice(2 + 4 * number, take, 2.0), RATE)
    soundfile.write(folder / "silence.wav", 0 * voice(0, 0, 2.0), RATE)
    return {path.stem: str(path) for path in folder.iterdir()}


@pytest.fixture
def store(tmp_path: Path, model: Path, wavs: dict[str, str]) -> str:
    """anna with two recordings, bo with one."""
    path = str(tmp_path / "speakers.db")
    words = [f"store={path}", f"model={model}"]
    assert main(["enrol", "anna", wavs["a0"], wavs["a1"], *words]) == 0
    assert main(["enrol", "bo", wavs["b0"], *words, "threshold=0.5"]) == 0
    return path


def test_enrolled_are_identified_and_verified(store, model, wavs, capsys):
    capsys.readouterr()
    loaded = load_model(model)
    by_hand = {
        "anna": loaded.verify([wavs["a0"], wavs["a1"]], wavs["b1"], threshold=0.5),
        "bo": loaded.verify(wavs["b0"], wavs["b1"], threshold=0.5),
    }
    ranked = sorted(by_hand, key=lambda name: -by_hand[name].score)
    words = [wavs["b1"], f"store={store}", f"model={model}"]
    assert main(["identify", *words, "format=json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {
        "wav": wavs["b1"], "speaker": ranked[0], "threshold": 0.5,
        "nearest": [{"name": name, "score": pytest.approx(by_hand[name].score)} for name in ranked],
    }  # fmt: skip
    assert main(["identify", *words, "n=1", "threshold=1"]) == 2
    assert capsys.readouterr().out == (f"{by_hand[ranked[0]].score:.4f} {ranked[0]}\nnobody known (threshold 1.0000)\n")
    assert main(["verify", str(model), f"test={wavs['b1']}", "name=anna", f"store={store}"]) == 0
    assert capsys.readouterr().out == (f"score {by_hand['anna'].score:.4f}\nsame speaker (threshold 0.5000)\n")


def test_list_and_forget(store, wavs, model, capsys):
    capsys.readouterr()
    assert main(["enrolled", store]) == 0
    lines = capsys.readouterr().out.splitlines()
    digest = model_digest(load_model(model).extractor.network, load_model(model).description)
    assert [line.rpartition(",")[0] for line in lines[:2]] == ["anna: 2 recordings", "bo: 1 recording"]
    assert lines[2] == f"2 speakers; model {model} ({digest[:12]}), threshold 0.5000 (given)"
    assert main(["forget", "anna", f"store={store}"]) == 0
    assert capsys.readouterr().out == f"anna: deleted from {store}\n"
    assert main(["enrolled", store, "format=json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["speakers"]] == ["bo"]
    assert "knows nobody called 'anna'" in said(
        capsys, "verify", model, f"test={wavs['a0']}", "name=anna", f"store={store}"
    )


def test_without_a_threshold_there_is_no_decision(tmp_path, model, wavs, capsys):
    words = [f"store={tmp_path / 's.db'}", f"model={model}"]
    assert main(["enrol", "anna", wavs["a0"], *words]) == 0
    assert main(["identify", wavs["a1"], *words]) == 3
    assert capsys.readouterr().out.splitlines()[-1].startswith("no decision: neither store nor model has a threshold")


def test_nothing_is_stored_where_one_file_is_no_speech(tmp_path, model, wavs, capsys):
    path = tmp_path / "s.db"
    words = ["enrol", "anna", wavs["a0"], wavs["silence"], f"store={path}", f"model={model}"]
    assert "0.00 s of voice in 2.00 s, expected 0.3 s or more (it is silent)" in said(capsys, *words)
    assert not path.exists()


def test_another_model_is_refused_by_name(tmp_path, store, model, wavs, capsys):
    other = write_model(tmp_path / "other", seed=1)
    for words in (["enrol", "cem", wavs["a0"]], ["identify", wavs["a0"]]):
        message = said(capsys, *words, f"store={store}", f"model={other}")
        assert f"{store}: holds embeddings of {model} (" in message
        assert f"found the model {other} (" in message
    assert [each.name for each in SpeakerStore(store).speakers()] == ["anna", "bo"]


def test_the_model_is_known_by_its_weights_not_by_its_folder(tmp_path, model):
    from svtoolkit.checkpoints.released import read_released, write_released

    network, description = read_released(model)
    description.verification = {"threshold": 0.1}
    copy, _ = read_released(write_released(tmp_path / "copy", network.state_dict(), description))
    first = model_digest(network, description)
    assert model_digest(copy, description) == first
    description.features.low_freq += 1
    assert model_digest(copy, description) != first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["name=anna", "test=a.wav"], "needs both, name=... and store=..."),
        (["name=anna", "store=s.db", "enrol=[a.wav]", "test=b.wav"], "found name=... beside enrol=..."),
        (["name=anna", "store=s.db"], "required and not given: test"),
    ],
)
def test_verify_with_half_of_a_store(model, capsys, words, message):
    assert message in said(capsys, "verify", f"model={model}", *words)
