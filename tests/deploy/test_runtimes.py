"""Exported files in sherpa-onnx, which computes features of its own, and a released file that it gets wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from exported_material import change, cosine_of

from svtoolkit.checkpoints.exported import KEY
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.cli import main
from svtoolkit.deploy.recordings import made_recordings
from svtoolkit.deploy.runtimes import CHECKED
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.scoring.speaker_model import SpeakerModel

pytest.importorskip("sherpa_onnx")
torch.set_num_threads(1)
RATE = 16000
SOUND = made_recordings(RATE)[2].samples


def write_model(folder: Path, backend: str) -> Path:
    sizes = {"name": "resnet10", "num_bins": 80, "embedding_dim": 16, "base_width": 4}
    torch.manual_seed(0)
    network = build_model(**sizes).train()
    with torch.no_grad():
        network(torch.randn(4, 120, 80))
    return write_released(folder, network.state_dict(), ModelDescription(sizes, features_config({"backend": backend})))


@pytest.mark.parametrize(
    ("backend", "framework", "scale"), [("torch", "wespeaker", "0"), ("kaldi_3d", "3d-speaker", "1")]
)
def test_sherpa_comes_near_and_is_told_apart(tmp_path, backend, framework, scale, capsys):
    model, out = write_model(tmp_path / "model", backend), tmp_path / "model.onnx"
    assert main(["export", str(model), str(out), "check=[onnxruntime,sherpa-onnx]"]) == 0
    told = capsys.readouterr().out
    assert "sherpa-onnx computes features of its own, with which a cosine of 0.9" in told
    assert "for equal scores export with input=waveform" in told
    said = {each.key: each.value for each in onnx.load(out).metadata_props}
    assert (said["framework"], said["normalize_samples"]) == (framework, scale)
    assert (said["output_dim"], said["sample_rate"]) == ("16", "16000")
    assert "feature_normalize_type" not in said
    expected = SpeakerModel.load(model).embed(SOUND)
    assert cosine_of(CHECKED["sherpa-onnx"].open(out.read_bytes(), RATE)(SOUND), expected) > 0.99


def test_sherpa_cannot_use_a_file_that_takes_waveforms(tmp_path, capsys):
    model, out = write_model(tmp_path / "model", "torch"), tmp_path / "model.onnx"
    assert main(["export", str(model), str(out), "input=waveform", "check=[onnxruntime,sherpa-onnx]"]) == 0
    assert "sherpa-onnx cannot use this file: it computes features itself" in capsys.readouterr().out
    assert {each.key for each in onnx.load(out).metadata_props} == {KEY}


def without_mean(graph: onnx.ModelProto) -> None:
    """As sherpa-onnx's script leaves a model of WeSpeaker: the mean is not removed, and nothing of ours is said."""
    subtraction = next(node for node in graph.graph.node if node.op_type == "Sub" and node.input[0] == "feats")
    for node in graph.graph.node:
        for place, name in enumerate(node.input):
            if name == subtraction.output[0]:
                node.input[place] = "feats"
    graph.graph.node.remove(subtraction)
    kept = [each for each in graph.metadata_props if each.key != KEY]
    del graph.metadata_props[:]
    graph.metadata_props.extend(kept)


def test_a_wrong_deployment_is_repaired_by_a_command(tmp_path):
    model, whole = write_model(tmp_path / "model", "torch"), tmp_path / "whole.onnx"
    assert main(["export", str(model), str(whole)]) == 0
    wrong, repaired = change(whole, tmp_path / "wrong.onnx", without_mean), tmp_path / "repaired.onnx"
    assert main(["export", str(wrong), str(repaired)]) == 0
    expected = SpeakerModel.load(model).embed(SOUND)

    def by_sherpa(path: Path) -> np.ndarray:
        return CHECKED["sherpa-onnx"].open(path.read_bytes(), RATE)(SOUND)

    assert cosine_of(by_sherpa(wrong), expected) < 0.9
    assert cosine_of(by_sherpa(repaired), expected) > 0.99
    assert cosine_of(RuntimeModel.load(repaired).embed(SOUND), expected) > 0.99999
