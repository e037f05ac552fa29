"""ONNX files as releases: sherpa-onnx's metadata, exports of other toolkits, and the same weights as a state dict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import yaml
from foreign_networks import randomise

pytest.importorskip("onnx", reason="onnx is not installed: scripts/setup.sh --extras dev")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper
from onnx_material import WEIGHTS, in_another_file, nemo_graph, small_graph, write_graph

from svtoolkit import load_model
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import Kaldi3DConfig, Nemo80Config
from svtoolkit.errors import UserError
from svtoolkit.models import build_model

torch.set_num_threads(1)

LENGTHS = (9_600, 50_720)
"""0.6 s and 3.17 s."""

WESPEAKER = {"framework": "wespeaker", "language": "English", "sample_rate": 16000, "output_dim": 4}
THREED = {
    "framework": "3d-speaker", "language": "Chinese", "sample_rate": 16000, "output_dim": 4, "normalize_samples": 1,
    "feature_normalize_type": "global-mean",
}  # fmt: skip
NEMO = {
    "framework": "nemo", "language": "English", "sample_rate": 16000, "output_dim": 4, "feature_normalize_type":
    "per_feature", "window_size_ms": 25, "window_stride_ms": 10, "window_type": "hann", "feat_dim": 80,
}  # fmt: skip


def refusal(path, **options) -> str:
    with pytest.raises(UserError) as caught:
        read_release(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


class Last(torch.nn.Module):
    """Of a tuple, as WeSpeaker's export_onnx.py."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        return self.network(feats)[-1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory, wespeaker):
    """A network of WeSpeaker's as its own tools write it: an ONNX file without metadata, and a state dict."""
    torch.manual_seed(5)
    network = randomise(wespeaker("models.tdnn").XVEC(feat_dim=80, embed_dim=64)).eval()
    folder = tmp_path_factory.mktemp("wespeaker")
    torch.save(network.state_dict(), folder / "avg_model.pt")
    config = {"model": "XVEC", "model_args": {"feat_dim": 80, "embed_dim": 64, "pooling_func": "TSTP"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    axes = {"feats": {0: "B", 1: "T"}, "embs": {0: "B"}}
    torch.onnx.export(
        Last(network).eval(), (torch.ones(1, 200, 80),), folder / "voxceleb_xvector.onnx", dynamo=False,
        opset_version=14, input_names=["feats"], output_names=["embs"], dynamic_axes=axes,
    )  # fmt: skip
    return folder


@pytest.mark.filterwarnings("ignore")
def test_an_export_of_wespeaker_gives_the_embeddings_of_its_weights(exported, tmp_path, capsys):
    assert find_release(exported).kind.name == "WeSpeaker", "an export beside the weights does not count"
    file, ours = exported / "voxceleb_xvector.onnx", tmp_path / "ours"
    assert main(["convert-model", f"model={file}", f"out={ours}"]) == 1
    assert "'embs' are named as of WeSpeaker's exports, whose features are fbank80" in capsys.readouterr().err
    assert main(["convert-model", f"model={file}", f"out={ours}", "front_end=fbank80"]) == 0, capsys.readouterr().err
    state, graph, converted = (
        load_model(exported, device="cpu"),
        load_model(file, device="cpu", front_end="fbank80"),
        load_model(ours, device="cpu"),
    )
    assert graph.description.features == state.description.features == converted.description.features
    assert converted.description.weights_sha256
    generator = np.random.default_rng(0)
    for samples in LENGTHS:
        waveforms = (0.1 * generator.standard_normal((3, samples))).astype(np.float32)
        expected = state.embed(list(waveforms))
        tolerance = 1e-5 * np.abs(expected).max()
        for model in (graph, converted):
            assert np.abs(model.embed(list(waveforms)) - expected).max() <= tolerance
            assert np.abs(model.extractor.forward(list(waveforms)) - expected).max() <= tolerance
    assert "size unknown" in repr(graph)


@pytest.mark.parametrize(
    ("said", "features", "names"),
    [
        (WESPEAKER, FeaturesConfig(), ("feats", "embs")),
        ({**WESPEAKER, "normalize_samples": 0, "normalize_features": 0}, FeaturesConfig(), ("feats", "embs")),
        ({**WESPEAKER, "sample_rate": 8000}, FeaturesConfig(sample_rate=8000), ("feats", "embs")),
        (THREED, Kaldi3DConfig(), ("x", "embedding")),
    ],
)
def test_the_metadata_of_sherpa_onnx_say_the_features(tmp_path, said, features, names):
    path = write_graph(tmp_path / "model.onnx", small_graph(names=names), said)
    model = load_model(tmp_path, device="cpu")
    assert model.description.features == features
    assert model.description.training["toolkit"] == said["framework"]
    waveform = (0.1 * np.random.default_rng(1).standard_normal(9_600)).astype(np.float32)
    frames = model.extractor.front_end(torch.from_numpy(waveform)[None])
    assert np.abs(model.embed(waveform) - (frames.mean(1) @ torch.from_numpy(WEIGHTS)).numpy()).max() <= 1e-5
    assert read_release(path, front_end="kaldi_3d")[1].features.backend == "kaldi_3d"


def test_a_graph_of_nemo(tmp_path):
    write_graph(tmp_path / "titanet.onnx", nemo_graph(), {**NEMO, "normalize_samples": 1})
    network, description = read_release(tmp_path)
    assert description.features == Nemo80Config()
    assert (description.model["output"], description.model["bins_first"]) == ("embs", True)
    frames = torch.randn(2, 37, 80)
    torch.testing.assert_close(network(frames), frames.mean(1) @ torch.from_numpy(WEIGHTS), rtol=1e-5, atol=1e-6)


def test_sizes_that_the_graph_leaves_open(tmp_path):
    open_graph = small_graph(("B", "T", "F"), size="D")
    said = {key: value for key, value in WESPEAKER.items() if key != "output_dim"}
    path = write_graph(tmp_path / "model.onnx", open_graph, said)
    assert read_release(path)[1].model == {
        "name": "onnx", "num_bins": 80, "embedding_dim": 4, "graph_bytes": path.stat().st_size, "output": "embs",
        "bins_first": False,
    }  # fmt: skip
    write_graph(path, small_graph(("B", "T", "F"), size="D"), {**said, "feat_dim": 40})
    assert "cannot run on features of shape (1, 200, 40)" in refusal(path)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, "does not say what features it takes: its metadata name no framework; input 'feats' and output 'embs'"),
        ({**WESPEAKER, "framework": "kaldi"}, "framework 'kaldi', expected wespeaker or 3d-speaker or nemo; say it"),
        ({**WESPEAKER, "normalize_samples": 1}, "framework 'wespeaker', and normalize_samples '1', which is not how"),
        ({**THREED, "feature_normalize_type": "none"}, "and feature_normalize_type 'none', which is not how it trains"),
        ({**WESPEAKER, "sample_rate": "16k"}, "its metadata say sample_rate '16k', expected a whole number above 0"),
        ({**WESPEAKER, "sample_rate": "9" * 5000}, "expected a whole number above 0"),
        ({**WESPEAKER, "output_dim": 192}, "its metadata say output_dim 192, but its output 'embs' has 4"),
        ({**NEMO, "window_size_ms": 20}, "its metadata say window_size_ms 20, but the front end nemo80 has 25"),
    ],
)
def test_metadata_that_do_not_say_it(tmp_path, said, found):
    graph = nemo_graph() if said.get("framework") == "nemo" else small_graph()
    path = write_graph(tmp_path / "model.onnx", graph, said)
    message = refusal(path)
    assert found in message
    assert "kaldi_3d" in message or "say it" not in message


def test_an_export_of_3d_speaker_is_known_by_its_names_and_asked_about(tmp_path):
    path = write_graph(tmp_path / "model.onnx", small_graph(names=("feature", "embedding")))
    assert "are named as of 3D-Speaker's exports, whose features are kaldi_3d; say it" in refusal(path)
    assert read_release(path, front_end="kaldi_3d")[1].features == Kaldi3DConfig()


def test_a_front_end_that_does_not_fit(tmp_path):
    weights = helper.make_tensor("w", TensorProto.FLOAT, (40, 4), WEIGHTS[:40])
    path = write_graph(tmp_path / "model.onnx", small_graph(("B", "T", 40), weights=weights), WESPEAKER)
    assert read_release(path)[1].features == FeaturesConfig(num_bins=40)
    assert "num_bins is 40, but the front end sb24 has 24 alone" in refusal(path, front_end="sb24")
    assert "front_end is 'waveform', expected one of fbank80, kaldi_3d" in refusal(path, front_end="waveform")


def test_files_that_cannot_be_used(tmp_path):
    path = write_graph(tmp_path / "model.onnx", small_graph(weights=in_another_file()), WESPEAKER)
    assert "a tensor of it has its content in another file, which is not read; download it again" in refusal(path)
    whole = write_graph(path, small_graph(), WESPEAKER).read_bytes()
    for damaged in (b"", whole[:100], b"no graph"):
        path.write_bytes(damaged)
        assert "cannot be used: it " in refusal(path)
    path.write_bytes(whole.replace(b"embs", b"\xa0mbs"))
    assert "cannot be used: 'utf-8' codec can't decode" in refusal(path)
    newer = small_graph()
    newer.opset_import[0].version = 99
    assert "cannot load it" in refusal(write_graph(path, newer, WESPEAKER))
    write_graph(tmp_path / "model.int8.onnx", small_graph(), WESPEAKER)
    assert "holds several ONNX files, 'model.int8.onnx', 'model.onnx'; give the file of one" in refusal(tmp_path)


def test_a_released_form_with_another_file_in_it_is_not_run(tmp_path):
    content = small_graph(weights=in_another_file()).SerializeToString()
    model = {"name": "onnx", "num_bins": 80, "embedding_dim": 4, "graph_bytes": len(content), "output": "embs"}
    graph = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    write_released(tmp_path / "ours", {"graph": graph}, ModelDescription(model, FeaturesConfig()))
    with pytest.raises(UserError, match="has its content in another file"):
        load_model(tmp_path / "ours", device="cpu").embed(np.zeros(9_600, np.float32))
    model["graph_bytes"] = 1 << 30
    write_released(tmp_path / "large", {"graph": graph}, ModelDescription(model, FeaturesConfig()))
    with pytest.raises(UserError, match=f"a network of {1 << 30} weights, but model.safetensors holds {len(content)}"):
        load_model(tmp_path / "large", device="cpu")


def test_it_cannot_be_trained(tmp_path, capsys):
    path = write_graph(tmp_path / "model.onnx", small_graph(), WESPEAKER)
    words = ["train", "data.train=data/train", f"exp_dir={tmp_path / 'exp'}"]
    for chosen in ([], ["model=resnet10", "features=fbank80"]):
        assert main([*words, f"init_from={path}", *chosen]) == 1
        assert f"{path}: its network is an ONNX graph, which cannot be trained" in capsys.readouterr().err
    assert main(["convert-model", f"model={path}", f"out={tmp_path / 'theirs'}", "format=wespeaker"]) == 1
    assert "model.name is 'onnx', and WeSpeaker has no such network" in capsys.readouterr().err
    for command in (words, ["memory"]):
        assert main([*command, "model=onnx"]) == 1
        assert "model=onnx is an ONNX graph, which comes as a released model and cannot be" in capsys.readouterr().err
    assert not (tmp_path / "exp").exists()
    with pytest.raises(UserError, match="precision is 'bf16', but its network is an ONNX graph"):
        load_model(path, device="cpu", precision="bf16")
    with pytest.raises(UserError, match="graph_bytes is 0, expected 1"):
        build_model("onnx", graph_bytes=0)


def test_a_report_says_no_number_of_parameters(tmp_path):
    from svtoolkit.reporting.facts import _network

    path = write_graph(tmp_path / "model.onnx", small_graph(), WESPEAKER)
    facts = _network(str(path), None, strict=True)
    assert (facts["model"], facts["parameters"], facts["embedding size"]) == ("onnx", None, 4)


def test_without_onnxruntime_its_name_is_said(tmp_path, monkeypatch):
    path = write_graph(tmp_path / "model.onnx", small_graph(), WESPEAKER)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert "`pip install onnxruntime`" in refusal(path)
