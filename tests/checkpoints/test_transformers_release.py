"""x-vector heads of transformers: its own classes and feature extractor against ours, from the waveform."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers_material import KINDS, original, write

from svtoolkit import load_model
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: scripts/setup.sh --extras dev"
)

torch.set_num_threads(1)

LENGTHS = (9_600, 50_720)
"""0.6 s and 3.17 s."""


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    return write(tmp_path_factory.mktemp("released") / "wavlm-tiny-sv", original("WavLMForXVector"))


@pytest.fixture
def copy(released, tmp_path):
    """Of a release, with config.json and preprocessor_config.json changed."""

    def change(config=None, preprocessor=None):
        for file in released.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        for name, values in (("config.json", config), ("preprocessor_config.json", preprocessor)):
            content = json.loads((released / name).read_text()) | (values or {})
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return change


def refusal(path, **options) -> str:
    with pytest.raises(UserError) as caught:
        read_release(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("architecture", KINDS)
def test_the_embeddings_are_those_of_transformers(tmp_path, architecture):
    normalised = architecture != "Wav2Vec2ForXVector"
    folder = write(tmp_path / "release", original(architecture), normalised=normalised)
    theirs = getattr(transformers, architecture).from_pretrained(folder)
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder)
    model = load_model(folder, device="cpu")
    generator = np.random.default_rng(0)
    for samples in LENGTHS:
        waveforms = (0.05 + 0.1 * generator.standard_normal((3, samples))).astype(np.float32)
        features = extractor(list(waveforms), sampling_rate=16_000, return_tensors="pt").input_values
        ours = model.extractor.front_end(torch.from_numpy(waveforms))
        assert (ours[:, :, 0] - features).abs().max() <= 1e-5
        for batch in (1, 3):
            with torch.no_grad():
                expected = theirs(features[:batch]).embeddings.numpy()
            tolerance = 1e-5 * np.abs(expected).max()
            assert np.abs(model.extractor.forward(list(waveforms[:batch])) - expected).max() <= tolerance
    assert_the_shortest_is_what_the_head_needs(model)


def assert_the_shortest_is_what_the_head_needs(model) -> None:
    samples = model.extractor.front_end.num_samples(1)
    waveform = np.random.default_rng(2).standard_normal(samples).astype(np.float32)
    assert np.isfinite(model.embed(waveform)).all()
    with pytest.raises(UserError, match=f"{samples - 1} samples are shorter than one window of {samples}"):
        model.embed(waveform[:-1])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        frames = torch.from_numpy(waveform[:-1])[None, :, None]
        assert not torch.isfinite(model.extractor.network(frames)).all(), "a deviation of one frame is none"


def test_what_a_description_says(released, tmp_path, capsys):
    assert find_release(released).kind.name == "transformers"
    assert find_release(released / "model.safetensors").weights == released / "model.safetensors"
    network, description = read_release(released)
    assert description.features == WaveformConfig(frame_length_ms=325.0, norm_signal=True)
    assert description.model["config"]["hidden_size"] == 32
    assert not any("classifier" in name or "objective" in name for name in network.state_dict())
    ours = tmp_path / "ours"
    assert main(["convert-model", f"model={released}", f"out={ours}"]) == 0, capsys.readouterr().err
    waveform = (0.1 * np.random.default_rng(1).standard_normal(9_600)).astype(np.float32)
    first, second = (load_model(folder, device="cpu").embed(waveform) for folder in (released, ours))
    assert np.array_equal(first, second)


def test_old_files_of_torch_and_old_names_of_weight_normalisation(released, tmp_path):
    state = safetensors.torch.load_file(released / "model.safetensors")
    old = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in state.items()
    }
    assert old.keys() != state.keys()
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((released / name).read_bytes())
    torch.save(old, tmp_path / "pytorch_model.bin")
    expected, found = (read_release(folder)[0].state_dict() for folder in (released, tmp_path))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    missing = next(name for name in old if name.endswith("weight_g"))
    del old[missing]
    torch.save({**old, "extra.weight": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    message = refusal(tmp_path)
    assert "parametrizations.weight.original0'" in message
    assert "the network has no 'network.extra.weight'" in message


@pytest.mark.parametrize(
    ("config", "preprocessor", "found"),
    [
        ({"architectures": ["WavLMModel"]}, None, "architectures is ['WavLMModel'], expected one of WavLMForXVector"),
        ({"architectures": None}, None, "architectures is None, expected one of"),
        ({"model_type": "hubert"}, None, "model_type is 'hubert', expected 'wavlm' of a WavLMForXVector"),
        ({"hidden_size": 64}, None, "the weights are those of another network"),
        ({"hidden_size": 10**9}, None, "config.hidden_size is 1000000000, expected a word or a number up to 1000000"),
        ({"num_hidden_layers": 100_000}, None, "num_hidden_layers is 100000, expected a word or a number up to 1000"),
        ({"hidden_act": "no_such"}, None, "transformers makes no WavLMForXVector of its config"),
        ({"tdnn_kernel": 5}, None, "config.tdnn_kernel is 5, expected a list of numbers up to 1000000"),
        ({"tdnn_kernel": [5]}, None, "config.json: "),
        (None, {"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, "expected Wav2Vec2FeatureExtractor"),
        (None, {"sampling_rate": "16k"}, "sampling_rate is '16k' and do_normalize True, expected Hz"),
        (None, {"do_normalize": "yes"}, "do_normalize 'yes', expected Hz, and true or false"),
    ],
)
def test_mistakes_in_a_release(copy, config, preprocessor, found):
    folder = copy(config, preprocessor)
    message = refusal(folder)
    assert message.startswith(str(folder))
    assert found in message


def test_files_that_are_missing(copy):
    folder = copy()
    (folder / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json: there is no such file, which says whether" in refusal(folder)
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors or pytorch_model.bin beside it" in refusal(folder)
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    assert find_release(folder) is None
    (folder / "config.json").write_text("{")
    assert "is not JSON" in refusal(folder)


def test_what_would_be_run_is_not(copy):
    """A custom class, a kernel from the hub and a file of code beside it are words."""
    folder = copy({
        "auto_map": {"AutoModelForXVector": "mine.Mine"}, "_attn_implementation": "somebody/kernel",
        "attn_implementation": "somebody/kernel", "trust_remote_code": True, "custom_pipelines": {"x": {"impl": "a"}},
    })  # fmt: skip
    witness = folder / "was_run"
    (folder / "mine.py").write_text(f"import os\nos.mkdir({str(witness)!r})\n")
    network, description = read_release(folder)
    assert "auto_map" not in description.model["config"]
    assert "/" not in str(network.network.config._attn_implementation)
    assert not witness.exists()
    for key in ("auto_map", "_attn_implementation"):
        model = {**description.model, "config": {**description.model["config"], key: "somebody/kernel"}}
        with pytest.raises(UserError, match=f"config has '{key}', expected no other keys than"):
            build_model(**model)
    with pytest.raises(UserError, match="architecture is 'BertModel', expected one of"):
        build_model(**{**description.model, "architecture": "BertModel"})


@pytest.mark.parametrize("error", [OSError("libtorchaudio.so: undefined symbol: x"), ImportError("no transformers")])
def test_a_package_beside_it_that_cannot_be_loaded_is_said(released, monkeypatch, error):
    class Broken:
        def __getattr__(self, name):
            raise error

    monkeypatch.setitem(__import__("sys").modules, "transformers", Broken())
    message = refusal(released)
    assert str(error) in message
    assert "uninstall a torchaudio that does not belong to the torch beside it" in message
