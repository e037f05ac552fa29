"""The network and the features of a run that begins from another: those of its description."""

from __future__ import annotations

import pytest
from compositions import load

from svtoolkit.cli import parse_words
from svtoolkit.config import ResNetConfig
from svtoolkit.errors import UserError


@pytest.fixture
def origin(tmp_path):
    """exp_dir of a run, with a space in its path, and the model that was released from it."""
    folder = tmp_path / "a run"
    (folder / "model").mkdir(parents=True)
    network = "model:\n  name: resnet18\n  embedding_dim: 64\n  base_width: 16\n{}features:\n  num_bins: 40\n"
    (folder / "config.yaml").write_text(network.format("") + "seed: 5\n")
    (folder / "model" / "model.yaml").write_text(network.format("  num_bins: 40\n"))
    return folder


@pytest.mark.parametrize("part", ["", "model"])
def test_network_and_features_are_those_of_init_from(origin, part, caplog):
    caplog.set_level("INFO", "svtoolkit")
    overrides, _ = parse_words("train", ["experiment=voxceleb_lm", "--init-from", str(origin / part)])
    config = load(*overrides)
    assert config.model == ResNetConfig("resnet18", 64, base_width=16)
    assert (config.features.num_bins, config.features.window, config.loss.margin) == (40, "hamming", 0.5)
    assert config.seed == 42
    assert "resnet18" in caplog.text
    assert str(origin) in caplog.text
    assert load(*overrides, "experiment=mini").model.name == "resnet18"


def test_fine_tuning_after_the_mini_recipe(origin):
    config = load("experiment=mini_lm", f"init_from={origin}")
    assert (config.model.name, config.init_head, config.data.speeds) == ("resnet18", "original_speakers", [1.0])
    assert (config.data.crop_frames, config.loss.margin) == (300, 0.4)
    schedule = config.margin_schedule
    assert (schedule.name, schedule.initial, schedule.start, schedule.end) == ("constant", 0.0, 0.0, 0.0)


def test_the_command_line_wins_over_init_from(origin):
    config = load(f"init_from={origin}", "model=resnet34", "features.num_bins=80")
    assert config.model == ResNetConfig("resnet34")
    assert config.features.num_bins == 80
    assert load(f"init_from={origin}", "model.base_width=8").model == ResNetConfig("resnet18", 64, base_width=8)
    assert load(f"init_from={origin}", "init_from=null").model.name == "resnet34"
    assert load("init_from=nowhere").model.name == "resnet34"  # that it is not there is said where it is read


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("model: {name: resnet43}\nfeatures: {}\n", "there is no model 'resnet43'"),
        ("seed: 3\n", "says nothing of the model"),
        ("a: [\n", "cannot be read as YAML"),
        ("model: {name: resnet18, embedding_dim: wide}\nfeatures: {}\n", "model.embedding_dim is 'wide'"),
    ],
)
def test_a_description_that_is_none(origin, content, part):
    (origin / "config.yaml").write_text(content)
    with pytest.raises(UserError) as caught:
        load(f"init_from={origin}")
    assert str(caught.value).startswith(f"{origin}/config.yaml: ")
    assert part in str(caught.value)
