"""Every file of conf/ against the schema: composed, commented, and with the defaults of the dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import yaml
from paths import ROOT

from svtoolkit import composition
from svtoolkit.composition.conf_files import default_choices, described_keys
from svtoolkit.composition.keys import key_types
from svtoolkit.config import GROUP_SCHEMAS, REQUIRED, SCHEMAS
from svtoolkit.models import build_model, list_models
from svtoolkit.models.registry import NETWORKS

CONF = ROOT / "conf"
FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*"))
YAML_FILES = [name for name in FILES if name.endswith(".yaml")]
GROUPS = composition.config_groups("train")
OPTIONS = [(group, option) for group, options in GROUPS.items() for option in options]
COMPOSING_COMMANDS = ["memory", "train"]
"""Those whose file stands beside the groups that it composes."""
PLAIN_COMMANDS = sorted(set(SCHEMAS) - set(COMPOSING_COMMANDS))


def content(name: str) -> dict[str, Any]:
    """Keys of a YAML file, without its defaults list."""
    keys = yaml.safe_load((CONF / name).read_text(encoding="utf-8"))
    keys.pop("defaults", None)
    return keys


def leaves(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def plain(config: Any) -> dict[str, Any]:
    return yaml.safe_load(composition.to_yaml(config))


def test_conf_holds_nothing_but_the_files_that_are_composed():
    expected = {"commands", *(f"{command}.yaml" for command in COMPOSING_COMMANDS), *GROUPS}
    expected |= {f"commands/{command}.yaml" for command in PLAIN_COMMANDS}
    expected |= {f"{group}/{option}.yaml" for group, option in OPTIONS}
    assert set(FILES) == expected


@pytest.mark.parametrize("name", YAML_FILES)
def test_every_key_carries_a_comment_that_says_more_than_its_name(name):
    for number, line in enumerate((CONF / name).read_text(encoding="utf-8").splitlines(), start=1):
        key, colon, rest = line.partition(":")
        value, _, comment = rest.partition("#")
        heads_a_block = not value.strip()
        if line.startswith("#") or not colon or heads_a_block or key == "defaults" or key.startswith("  - data"):
            continue
        if name in ("train.yaml", "memory.yaml") and key.startswith("  - ") and "experiment" not in key:
            continue  # the file that is chosen there explains itself
        assert len(comment.strip()) > 1, f"{name}:{number}: {line!r} has no comment"
        assert comment.strip() != key.strip(), f"{name}:{number}: {line!r}"


@pytest.mark.parametrize("name", YAML_FILES)
def test_every_file_begins_with_what_it_is(name):
    lines = (CONF / name).read_text(encoding="utf-8").splitlines()
    heading = lines[1] if lines[0] == "# @package _global_" else lines[0]
    assert heading.startswith("# ")
    assert heading.endswith((".", ")"))


@pytest.mark.parametrize("command", PLAIN_COMMANDS)
def test_a_command_s_file_holds_exactly_the_keys_and_defaults_of_its_schema(command):
    written = content(f"commands/{command}.yaml")
    assert list(written) == [item.name for item in dataclasses.fields(SCHEMAS[command])]
    assert written == dataclasses.asdict(SCHEMAS[command]())
    assert plain(composition.compose(command, [])) == written


@pytest.mark.parametrize(("group", "option"), [pair for pair in OPTIONS if pair[0] != "experiment"])
def test_an_option_s_file_holds_exactly_the_keys_of_its_schema(group, option):
    node = type(getattr(SCHEMAS["train"](), group))
    some_have_their_own = group in {of_group for of_group, _ in GROUP_SCHEMAS}
    schema = GROUP_SCHEMAS.get((group, option), node.__mro__[-2] if some_have_their_own else node)
    assert list(content(f"{group}/{option}.yaml")) == [item.name for item in dataclasses.fields(schema)]


@pytest.mark.parametrize("command", COMPOSING_COMMANDS)
def test_the_file_of_a_command_with_groups_holds_exactly_the_keys_of_its_schema(command):
    nodes = {choice.name for choice in default_choices(command)}
    schema = SCHEMAS[command]
    items = [item.name for item in dataclasses.fields(schema)]
    assert nodes - {"experiment"} == {name for name in items if dataclasses.is_dataclass(getattr(schema(), name))}
    assert list(content(f"{command}.yaml")) == [name for name in items if name not in nodes]


@pytest.mark.parametrize("command", COMPOSING_COMMANDS)
def test_defaults_of_the_dataclasses_are_those_that_a_command_composes(command):
    assert plain(composition.compose(command, [])) == dataclasses.asdict(SCHEMAS[command]())


def test_what_training_and_its_memory_have_in_common_has_the_same_defaults():
    train, memory = composition.compose("train", []), composition.compose("memory", [])
    for group in composition.config_groups("memory"):
        assert plain(train[group]) == plain(memory[group])
    assert memory.frames == train.data.crop_frames
    assert memory.num_bins == train.features.num_bins
    assert (memory.precision, memory.channels_last) == (train.trainer.precision, train.trainer.channels_last)


def test_a_command_has_the_groups_of_its_file_alone():
    assert sorted(composition.config_groups("memory")) == ["loss", "memory", "model", "optim"]
    assert set(composition.config_groups("memory")) < set(GROUPS)
    assert composition.config_groups("models") == composition.config_groups("embed") == {}


@pytest.mark.parametrize("option", GROUPS["memory"])
def test_a_command_and_a_group_of_one_name_do_not_get_in_each_other_s_way(option):
    assert composition.compose("memory", [f"memory={option}", "frames=7"]).memory.strategy == option
    assert composition.compose("memory", [f"memory={option}", "frames=7"]).frames == 7
    assert composition.compose("train", [f"memory={option}"]).memory.strategy == option


def test_the_schemas_of_options_have_the_defaults_of_their_files():
    for (group, option), schema in GROUP_SCHEMAS.items():
        expected = dataclasses.asdict(schema())
        if group == "model":  # one schema for the networks of a family
            expected["name"] = option
        assert content(f"{group}/{option}.yaml") == expected, (group, option)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_and_is_what_its_file_says(group, option):
    composed = plain(composition.compose("train", [f"{group}={option}"]))
    written = content(f"{group}/{option}.yaml")
    expected = leaves(written if group == "experiment" else {group: written})
    found = leaves(composed)
    assert {key: found[key] for key in expected} == expected
    assert composition.load("train", [f"{group}={option}", "exp_dir=x", "data.train=y"])


@pytest.mark.parametrize("experiment", GROUPS["experiment"])
def test_what_is_typed_wins_over_an_experiment(experiment):
    composed = composition.compose("train", [f"experiment={experiment}", "model=resnet18", "trainer.epochs=3"])
    assert composed.model.name == "resnet18"
    assert composed.trainer.epochs == 3
    others = leaves(content(f"experiment/{experiment}.yaml"))
    found = leaves(plain(composed))
    assert all(found[key] == value for key, value in others.items() if key != "trainer.epochs")


def test_there_is_an_option_for_every_network_of_the_registry_and_for_no_other():
    assert {content(f"model/{option}.yaml")["name"] for option in GROUPS["model"]} == set(list_models())
    assert all(content(f"model/{option}.yaml")["name"] == option for option in GROUPS["model"])


@pytest.mark.parametrize("option", GROUPS["model"])
def test_a_network_s_file_says_how_many_parameters_it_has(option):
    heading = (CONF / "model" / f"{option}.yaml").read_text(encoding="utf-8").splitlines()[0]
    with torch.device("meta"):
        network = build_model(option)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert heading.endswith(f"; {count / 1e6:.2f} M parameters.")


@pytest.mark.parametrize("option", GROUPS["model"])
def test_a_network_s_file_has_all_options_of_its_family_and_no_other(option):
    assert set(content(f"model/{option}.yaml")) == {item.name for item in dataclasses.fields(NETWORKS[option].settings)}


@pytest.mark.parametrize("command", sorted(SCHEMAS))
def test_plain_text_reading_finds_every_key_with_its_default_and_comment(command):
    entries = described_keys(command)
    composed = leaves(plain(composition.compose(command, [])))
    assert {entry.name for entry in entries} == set(composed)
    for entry in entries:
        assert yaml.safe_load(entry.default) == composed[entry.name], entry
        assert len(entry.text) > 1, entry


@pytest.mark.parametrize("command", sorted(SCHEMAS))
def test_key_types_knows_every_key_of_every_option(command):
    composed = set(leaves(plain(composition.compose(command, []))))
    assert composed <= set(key_types(command))
    if command == "train":
        of_others = "beta1 beta2 eps block_size min_8bit_size backend".split()
        assert set(key_types(command)) - composed == {f"optim.{key}" for key in of_others}


def test_options_are_listed_by_number():
    resnets = [option for option in GROUPS["model"] if option.startswith("resnet")]
    assert resnets[:4] == ["resnet10", "resnet18", "resnet34", "resnet50"]


def test_what_is_required_is_so_in_schema_and_file():
    required = {key for key, value in leaves(plain(composition.compose("train", []))).items() if value == REQUIRED}
    assert required == {"exp_dir", "data.train"}


def test_a_file_with_an_unknown_key_is_refused(tmp_path, monkeypatch):
    import shutil

    from svtoolkit.errors import UserError

    copy = tmp_path / "conf"
    shutil.copytree(CONF, copy)
    with (copy / "trainer" / "default.yaml").open("a", encoding="utf-8") as stream:
        stream.write("epoch: 3 # misspelt\n")
    monkeypatch.setattr(composition, "command_dir", lambda command: copy)
    with pytest.raises(UserError, match="epoch"):
        composition.compose("train", [])
