"""The released form: bit-exact there and back, plain data, and a sentence for each way it can be broken."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml

import svtoolkit.checkpoints.released as released
from svtoolkit.checkpoints.released import (
    ModelDescription,
    read_description,
    read_released,
    write_description,
    write_released,
)
from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models import SpeakerNetwork, build_model
from svtoolkit.registry import Registry, Row

torch.set_num_threads(1)

MODEL = {"name": "resnet10", "num_bins": 24, "embedding_dim": 8, "base_width": 2}


def a_network() -> SpeakerNetwork:
    torch.manual_seed(5)
    network = build_model(**MODEL)
    network(torch.randn(4, 30, 24))  # BatchNorm statistics of its own
    return network


def a_description() -> ModelDescription:
    return ModelDescription(
        model=dict(MODEL),
        features=FeaturesConfig(num_bins=24, sample_rate=8000, window="povey", high_freq=-100.0),
        training={"epochs_averaged": [3, 4], "loss": "aam", "seed": 42},
        verification={"threshold": 0.25, "eer": 1e-7, "trials_sha256": "ab12"},
    )


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_released(tmp_path / "model", a_network().state_dict(), a_description())


def edit(folder: Path, change) -> None:
    """Change what model.yaml says."""
    path = folder / "model.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def refusal(folder: Path, read=read_released) -> str:
    with pytest.raises(UserError) as caught:
        read(folder)
    return str(caught.value)


@pytest.mark.parametrize("name", ["gemini_df_resnet60", "df_resnet56", "revnet_tiny", "revnext_tiny"])
def test_networks_without_options_of_a_family(tmp_path, name):
    """What `svt train` gives them, and what a description written by hand may say: null, as published."""
    torch.manual_seed(5)
    model = {"name": name, "num_bins": 24, "embedding_dim": 8}
    weights = build_model(**model).state_dict()
    for sizes in (model, {**model, "base_width": None}):
        written = ModelDescription(model=dict(sizes), features=FeaturesConfig(num_bins=24))
        network, description = read_released(write_released(tmp_path / "model", weights, written))
        assert description == written
        assert all(torch.equal(tensor, weights[key]) for key, tensor in network.state_dict().items())
    edit(tmp_path / "model", lambda content: content["model"].update(base_width=16))
    assert f"model.yaml: network {name} has no option 'base_width'; valid are num_bins" in refusal(tmp_path / "model")


def test_round_trip_to_the_last_bit(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "model.yaml"]
    network, description = read_released(folder)
    assert description == a_description()
    assert not network.training
    expected = a_network().state_dict()
    found = network.state_dict()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    frames = torch.randn(2, 30, 24)
    with torch.no_grad():
        assert torch.equal(network(frames), a_network().eval()(frames))


def test_weights_of_any_memory_layout_are_written(tmp_path):
    weights = a_network().to(memory_format=torch.channels_last).state_dict()
    network, _ = read_released(write_released(tmp_path, weights, a_description()))
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())


def test_the_files_are_plain_data(folder):
    content = yaml.safe_load((folder / "model.yaml").read_text())
    assert list(content) == ["format", "model", "features", "training", "verification", "weights_sha256"]
    assert content["format"] == 1
    assert content["model"] == MODEL
    assert content["features"] == asdict(a_description().features)
    blob = (folder / "model.safetensors").read_bytes()
    header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
    assert header["embedding.weight"]["shape"] == list(a_network().embedding.weight.shape)


def test_what_is_empty_may_be_missing(folder):
    edit(folder, lambda content: [content.pop("training"), content.pop("verification")])
    description = read_description(folder)
    assert (description.training, description.verification) == ({}, {})


def test_a_number_may_be_written_without_its_point(folder):
    edit(folder, lambda content: content["features"].update(low_freq=20))
    assert read_description(folder).features.low_freq == 20


def test_a_new_description_leaves_the_weights(folder):
    before = (folder / "model.safetensors").read_bytes()
    description = a_description()
    description.verification["threshold"] = 0.5
    write_description(folder, description)
    assert (folder / "model.safetensors").read_bytes() == before
    assert read_released(folder)[1].verification["threshold"] == 0.5


def test_the_description_comes_last(tmp_path, monkeypatch):
    """A folder with a description is complete: an interruption before it leaves none."""

    def interrupted(folder, description):
        assert (folder / "model.safetensors").is_file()
        raise KeyboardInterrupt

    monkeypatch.setattr(released, "write_description", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_released(tmp_path, a_network().state_dict(), a_description())
    assert "there is no such file; expected a released model" in refusal(tmp_path)


def test_what_is_no_plain_data_is_not_written(folder):
    before = (folder / "model.yaml").read_bytes()
    description = a_description()
    description.training["path"] = Path("/somewhere")
    with pytest.raises(yaml.representer.RepresenterError):
        write_description(folder, description)
    assert (folder / "model.yaml").read_bytes() == before
    assert len(list(folder.iterdir())) == 2


# ---- nothing is executed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{path}]]",
        "!!python/object/apply:os.system ['touch {path}']",
        "!!python/name:os.system",
        "!<tag:yaml.org,2002:python/object/new:subprocess.Popen> [[touch, {path}]]",
    ],
)
@pytest.mark.parametrize("read", [read_description, read_released])
def test_python_tags_in_the_description_are_refused(folder, tmp_path, tag, read):
    evidence = tmp_path / "executed"
    path = folder / "model.yaml"
    path.write_text(path.read_text() + f"extra: {tag.format(path=evidence)}\n")
    message = refusal(folder, read)
    assert message.startswith(f"{path}: is not YAML (could not determine a constructor for the tag")
    assert "re-create it with `svt average`" in message
    assert not evidence.exists()


class Payload:
    """Unpickled carelessly, it makes a file."""

    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self):
        return (Path.touch, (self.evidence,))


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_pickle_in_place_of_the_weights_is_refused(folder, tmp_path, form):
    evidence, path = tmp_path / "executed", folder / "model.safetensors"
    if form == "pickle":
        path.write_bytes(pickle.dumps(Payload(evidence)))
    else:
        torch.save({"stem.0.weight": Payload(evidence)}, path)
    assert refusal(folder).startswith(f"{path}: cannot be read (")
    assert not evidence.exists()


# ---- broken descriptions ------------------------------------------------------------------------------------------


def test_no_description(folder):
    (folder / "model.yaml").unlink()
    found = refusal(folder)
    assert found.startswith(f"{folder / 'model.yaml'}: there is no such file")
    assert found.endswith("`svt average`")
    assert "there is no such file" in refusal(folder / "nowhere", read_description)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "format is 'NoneType', expected 1"),
        (b"- a list\n", "format is 'list', expected 1"),
        (b"just words", "format is 'str', expected 1"),
        (b"model: {name: resnet10}\n", "format is None, expected 1"),
        (b"format: 2\n", "format is 2, expected 1"),
        (b"format: '1'\n", "format is '1', expected 1"),
        (b"format: 1\nmodel: {name: [\n", "is not YAML (while parsing a flow"),
        (b"format: 1\n\tmodel: x\n", "is not YAML (while scanning"),
        (b"format: \xff\xfe\n", "is not YAML ("),
        (b"format: \x00\n", "is not YAML (unacceptable character"),
        (b"format: 1\n", "section 'model' is missing"),
        (b"format: 1\nmodel: resnet10\nfeatures: {}\n", "section 'model' is missing"),
        (b"format: 1\nmodel: {name: resnet10}\n", "section 'features' is missing"),
        (b"format: 1\nmodel: {name: resnet10}\nfeatures: [1]\n", "section 'features' is missing"),
    ],
)
def test_a_description_that_is_none(folder, text, message):
    (folder / "model.yaml").write_bytes(text)
    found = refusal(folder, read_description)
    assert found.startswith(f"{folder / 'model.yaml'}: {message}")
    assert found.endswith("`svt average`")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "features has no option 'colour'; "),
        ({1: 2}, "features has no option 1; valid are "),
        ({"num_bins": "24"}, "features: num_bins is '24', expected a whole number"),
        ({"num_bins": 24.0}, "features: num_bins is 24.0, expected a whole number"),
        ({"num_bins": True}, "features: num_bins is True, expected a whole number"),
        ({"sample_rate": None}, "features: sample_rate is None, expected a whole number"),
        ({"low_freq": "low"}, "features: low_freq is 'low', expected a finite number"),
        ({"low_freq": True}, "features: low_freq is True, expected a finite number"),
        ({"remove_mean": 1}, "features: remove_mean is 1, expected true or false"),
        ({"window": 3}, "features: window is 3, expected text"),
        ({"num_bins": 40}, "model.num_bins is 24 and features.num_bins is 40, expected the same"),
    ],
)
def test_features_that_are_none(folder, change, message):
    edit(folder, lambda content: content["features"].update(change))
    assert refusal(folder, read_description).startswith(f"{folder / 'model.yaml'}: {message}")


@pytest.mark.parametrize("section", ["training", "verification"])
@pytest.mark.parametrize("value", [[1], "text", 3])
def test_facts_that_are_no_mapping(folder, section, value):
    edit(folder, lambda content: content.update({section: value}))
    assert refusal(folder).startswith(f"{folder / 'model.yaml'}: section {section!r} is {value!r}, expected a mapping")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "resnet11"}, "there is no network 'resnet11'; did you mean"),
        ({"name": None}, "there is no network None"),
        ({"embedding_dim": 0}, "network resnet10: embedding_dim is 0, expected a whole number of 1 or more"),
        ({"embedding_dim": "8"}, "network resnet10: embedding_dim is '8', expected a whole number"),
        ({"squeeze": 0.1}, "network resnet10 has no option 'squeeze'"),
        ({3: 4}, "section 'model' does not describe a network"),
    ],
)
def test_a_model_that_cannot_be_built(folder, change, message):
    edit(folder, lambda content: content["model"].update(change))
    found = refusal(folder)
    assert found.startswith(f"{folder / 'model.yaml'}: {message}")


def test_a_network_of_a_package_that_is_not_installed(folder, monkeypatch):
    networks = Registry("network", "svtoolkit.models", {"resnet10": Row("svtoolkit.models:build_model")})
    monkeypatch.setattr(released, "build_model", lambda name, **_: networks[name])
    edit(folder, lambda content: content["model"].update(name="tdnn_of_my_package"))
    found = refusal(folder)
    assert found.startswith(f"{folder / 'model.yaml'}: there is no network 'tdnn_of_my_package'")
    assert "install that package here: it needs an entry point tdnn_of_my_package" in found


def test_a_model_without_a_name(folder):
    edit(folder, lambda content: content["model"].pop("name"))
    assert refusal(folder).startswith(f"{folder / 'model.yaml'}: section 'model' does not describe a network")


# ---- broken weights -----------------------------------------------------------------------------------------------


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    found = refusal(folder)
    assert found.startswith(f"{folder / 'model.safetensors'}: there is no such file")
    assert found.endswith("beside model.yaml")


@pytest.mark.parametrize("damage", ["empty", "truncated", "header", "zeros"])
def test_damaged_weights(folder, damage):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    broken = {
        "empty": b"",
        "truncated": content[:-1],
        "header": content[:8] + b"!" + content[9:],
        "zeros": bytes(len(content)),
    }
    path.write_bytes(broken[damage])
    message = refusal(folder)
    assert message.startswith(f"{path}: cannot be read (")
    assert message.endswith("copy it again or re-create it with `svt average`")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("embedding.bias"), 'Missing key(s) in state_dict: "embedding.bias"'),
        (lambda weights: weights.update(extra=torch.zeros(1)), 'Unexpected key(s) in state_dict: "extra"'),
        (lambda weights: weights.update({"embedding.bias": torch.zeros(9)}), "size mismatch for embedding.bias"),
    ],
)
def test_weights_of_another_network(folder, change, message):
    weights = {name: tensor.clone() for name, tensor in a_network().state_dict().items()}
    change(weights)
    path = folder / "model.safetensors"
    write_released(folder, weights, a_description())
    found = refusal(folder)
    assert found.startswith(f"{path}: weights do not fit the network of model.yaml: ")
    assert message in found
    assert "\n" not in found


def test_other_sizes_in_the_description_do_not_fit_the_weights(folder):
    edit(folder, lambda content: content["model"].update(embedding_dim=16))
    assert "size mismatch for embedding.weight" in refusal(folder)


def flip_a_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_of_the_weights_is_noticed(folder):
    flip_a_bit(folder)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'model.safetensors'}: has the SHA-256 ")
    assert message.endswith("copy both files again, or re-create them with `svt average`")


def test_a_threshold_that_is_stored_later_keeps_the_checksum(folder):
    description = read_description(folder)
    description.verification = {"threshold": 0.5}
    write_description(folder, description)
    assert read_released(folder)[1].verification == {"threshold": 0.5}
    flip_a_bit(folder)
    assert "has the SHA-256" in refusal(folder)


def test_models_without_a_checksum_load(folder):
    edit(folder, lambda content: content.pop("weights_sha256"))
    flip_a_bit(folder)
    assert read_released(folder)[1].weights_sha256 is None
    write_description(folder, read_description(folder))
    assert "weights_sha256" not in (folder / "model.yaml").read_text()


@pytest.mark.parametrize("value", ["abc", 3, ["a"], "g" * 64])
def test_a_checksum_that_is_none(folder, value):
    edit(folder, lambda content: content.update(weights_sha256=value))
    assert "weights_sha256 is" in refusal(folder)
