"""Stores and exported files: which share one with what they were made of, and which are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from command_material import RATE, voice
from exported_material import BLOCKED, write_exported
from paths import ROOT

from svtoolkit import load_model
from svtoolkit.checkpoints.exported import parse_exported
from svtoolkit.cli import main
from svtoolkit.models.onnx_graph import metadata_of
from svtoolkit.runtime.model import RuntimeModel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, files of it of 32 and of 8 bits and one that was compared laxly, recordings of two speakers."""
    folder = tmp_path_factory.mktemp("store")
    write_exported(folder, threshold=0.5, operating_point="fa_rate=0.01")
    (folder / "wavs").mkdir()
    for number, name in enumerate("ab"):
        for take in range(2):
            soundfile.write(folder / "wavs" / f"{name}{take}.wav", voice(2 + 4 * number, take, 2.0), RATE)
    lax = ["min_cosine=-1", "max_difference=2"]
    words = [f"calibration={folder / 'wavs'}", "precision=int8", *lax]
    assert main(["export", str(folder / "model"), str(folder / "int8.onnx"), *words]) == 0
    assert main(["export", str(folder / "model"), str(folder / "lax.onnx"), *lax]) == 0
    return folder


def wav(folder: Path, name: str) -> str:
    return str(folder / "wavs" / f"{name}.wav")


def test_a_model_and_its_file_share_a_store(folder, tmp_path, capsys):
    store = f"store={tmp_path / 'speakers.db'}"
    assert main(["enrol", "anna", wav(folder, "a0"), store, f"model={folder / 'model'}"]) == 0
    assert main(["enrol", "bo", wav(folder, "b0"), store, f"model={folder / 'model.onnx'}"]) == 0
    capsys.readouterr()
    said = []
    for model in ("model", "model.onnx"):
        assert main(["identify", wav(folder, "b1"), store, f"model={folder / model}", "threshold=-1"]) == 0
        assert main(["verify", str(folder / model), f"test={wav(folder, 'a1')}", "name=anna", store]) in (0, 2)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "bo" in said[0]


@pytest.mark.parametrize("file", ["int8.onnx", "lax.onnx"])
def test_a_file_whose_scores_are_others_is_refused(folder, file, tmp_path, capsys):
    store = f"store={tmp_path / 'speakers.db'}"
    assert main(["enrol", "anna", wav(folder, "a0"), store, f"model={folder / 'model'}"]) == 0
    for words in (["enrol", "bo", wav(folder, "b0")], ["identify", wav(folder, "b0")]):
        assert main([*words, store, f"model={folder / file}"]) == 1
        assert f"found the model {folder / file} (" in capsys.readouterr().err
    assert main(["verify", str(folder / file), f"test={wav(folder, 'a1')}", "name=anna", store]) == 1
    assert "cannot be compared with them" in capsys.readouterr().err
    own = f"store={tmp_path / 'own.db'}"
    assert main(["enrol", "anna", wav(folder, "a0"), own, f"model={folder / file}"]) == 0
    assert main(["identify", wav(folder, "a0"), own, f"model={folder / file}", "threshold=0.9"]) == 0


def test_digests(folder):
    released = load_model(folder / "model", device="cpu").digest
    assert RuntimeModel.load(folder / "model.onnx").digest == released
    others = {RuntimeModel.load(folder / file).digest for file in ("int8.onnx", "lax.onnx")}
    assert len(others | {released}) == 3
    content = (folder / "model.onnx").read_bytes()
    described = parse_exported(metadata_of(content))
    described.checked["tolerance"] = "wide"
    assert described.digest(content) not in (released, described.model_digest)


def test_no_torch_is_needed(folder, tmp_path):
    code = BLOCKED.format(blocked={"torch"}) + "from svtoolkit.cli import main\nsys.exit(main(sys.argv[1:]))"
    words = [f"store={tmp_path / 'speakers.db'}", f"model={folder / 'model.onnx'}"]
    for command in (["enrol", "anna", wav(folder, "a0")], ["identify", wav(folder, "a1"), "threshold=-1"]):
        found = subprocess.run(
            [sys.executable, "-c", code, *command, *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (found.returncode, found.stderr) == (0, "")
    assert "anna" in found.stdout
