"""svt export: the file, what it says, and the refusals, after which nothing is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
import torch
from command_material import BINS, said
from exported_material import change, cosine_of, write_exported

from svtoolkit import load_model
from svtoolkit.checkpoints.exported import KEY
from svtoolkit.cli import main
from svtoolkit.deploy import export as export_module
from svtoolkit.deploy.graph import export_graph
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.system.checksum import hash_file

torch.set_num_threads(1)


def metadata(path: Path) -> dict[str, str]:
    return {each.key: each.value for each in onnx.load(path).metadata_props}


def test_the_file_says_what_it_is(tmp_path, capsys):
    path = write_exported(tmp_path, threshold=0.4, operating_point="eer")
    told = json.loads(metadata(path)[KEY])
    assert told["model"]["name"] == "resnet10"
    assert told["features"]["num_bins"] == BINS
    assert told["verification"] == {"threshold": 0.4, "operating_point": "eer"}
    assert told["weights_sha256"] == hash_file(tmp_path / "model" / "model.safetensors")
    (agreement,) = told["checked"]["agreements"]
    assert agreement["runtime"] == "onnxruntime"
    assert agreement["least_cosine"] > 0.9999
    assert "framework" not in metadata(path)  # 24 bins, which sherpa-onnx does not compute
    assert f"{tmp_path / 'model'} -> {path}: features in, fp32" in capsys.readouterr().out


def test_waveforms_in_and_16_bits(tmp_path, eval_dir):
    path = write_exported(tmp_path, "input=waveform", "precision=fp16", "check=[onnxruntime,openvino]")
    file = eval_dir.wav_scp["s20-0"]
    found = RuntimeModel.load(path, threads=1).embed(file)
    assert cosine_of(found, load_model(tmp_path / "model").embed(file)) > 0.9999


def test_int8_needs_recordings_and_is_compared_on_trials(tmp_path, model, eval_data, train_data, capsys):
    out = tmp_path / "small.onnx"
    words = ["export", str(model), str(out), "precision=int8"]
    assert "precision=int8 needs recordings to see how large activations are; give calibration=DIR" in said(
        capsys, *words
    )
    assert not out.exists()
    words += ["--calibration", str(train_data), "--data", str(eval_data), "--trials", str(eval_data / "trials")]
    assert main([*words, "max_difference=0.2", "min_cosine=0.9"]) == 0
    told = json.loads(metadata(out)[KEY])
    assert told["precision"] == "int8"
    (agreement,) = told["checked"]["agreements"]
    assert agreement["recordings"] == 16
    assert 0 <= agreement["eer_torch"] <= 1


@pytest.mark.parametrize("key", ["calibration", "data"])
def test_recordings_that_are_too_few_or_too_short(tmp_path, model, key, capsys):
    heard, out = tmp_path / "heard", tmp_path / "model.onnx"
    heard.mkdir()
    words = ["export", str(model), str(out), f"{key}={heard}", *(["precision=int8"] if key == "calibration" else [])]
    soundfile.write(heard / "a.wav", np.zeros(8000), 8000)
    assert f"error: {heard}: one recording" in said(capsys, *words)
    soundfile.write(heard / "b.wav", np.zeros(3), 8000)
    assert f"error: {heard / 'b.wav'}: 3 samples are shorter than one window of 200" in said(capsys, *words)
    assert not out.exists()


def test_a_graph_that_is_another_model_is_refused(tmp_path, model, monkeypatch, capsys):
    def spoiled(network, front_end, *, waveform):
        graph = onnx.load_from_string(export_graph(network, front_end, waveform=waveform))
        bias = next(each for each in graph.graph.initializer if list(each.dims) == [16])
        values = onnx.numpy_helper.to_array(bias) + 3.0
        bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
        return graph.SerializeToString()

    monkeypatch.setattr(export_module, "export_graph", spoiled)
    out = tmp_path / "new" / "model.onnx"
    told = said(capsys, "export", str(model), str(out))
    assert f"error: {model}: the exported graph is not the model: with onnxruntime a cosine of " in told
    assert "is below 0.9999; nothing was written" in told
    assert not out.exists()
    assert not out.parent.exists()


def test_a_file_that_is_there_stays_where_an_export_is_refused(tmp_path, model, capsys):
    out = tmp_path / "model.onnx"
    out.write_bytes(b"as it was")
    assert "a score differs by" in said(capsys, "export", str(model), str(out), "max_difference=-1", "min_cosine=-1")
    assert out.read_bytes() == b"as it was"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["format=tflite"], "format is 'tflite', expected onnx"),
        (["input=samples"], "input is 'samples', expected features or waveform"),
        (["precision=int4"], "precision is 'int4', expected fp32, fp16, bf16, int8"),
        (["out=model.bin"], "out is model.bin, expected a file that ends with .onnx"),
        (["check=[tensorrt]"], "check holds 'tensorrt', expected onnxruntime, openvino, ncnn, sherpa-onnx"),
        (["check=[]"], "check needs onnxruntime, openvino or ncnn"),
        (["calibration=somewhere"], "calibration is of precision=int8, found precision=fp32"),
        (["trials=list"], "trials is a list of recordings of data, which is not given"),
        (["data_utterances=0"], "data_utterances is 0, expected 1 or more"),
        (["data=nowhere"], "nowhere"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_mistakes(tmp_path, model, words, expected, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = [] if words[0].startswith("out=") else ["out=model.onnx"]
    assert expected in said(capsys, "export", f"model={model}", *out, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_its_description_is_a_release_of_another_toolkit(tmp_path, model, capsys):
    path = write_exported(tmp_path)
    bare = change(path, tmp_path / "bare.onnx", lambda graph: graph.metadata_props.__delitem__(slice(None)))
    assert "does not say what features it takes" in said(capsys, "verify", str(bare), "a.wav", "b.wav")
