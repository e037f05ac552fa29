"""Every file of conf/ against the schema: composed, commented, and with the defaults of the dataclasses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from svtoolkit import composition
from svtoolkit.composition.conf_files import default_choices, described_keys
from svtoolkit.composition.keys import key_types
from svtoolkit.config import GROUP_SCHEMAS, REQUIRED, SCHEMAS
from svtoolkit.models import list_models

CONF = Path(__file__).resolve().parents[1] / "conf"
FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*"))
YAML_FILES = [name for name in FILES if name.endswith(".yaml")]
GROUPS = composition.config_groups("train")
OPTIONS = [(group, option) for group, options in GROUPS.items() for option in options]
PLAIN_COMMANDS = sorted(set(SCHEMAS) - {"train"})


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
    expected = {"commands", "train.yaml", *GROUPS}
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
        if name == "train.yaml" and key.startswith("  - ") and "experiment" not in key:
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
    node = getattr(SCHEMAS["train"](), group)
    schema = GROUP_SCHEMAS.get((group, option), type(node))
    assert list(content(f"{group}/{option}.yaml")) == [item.name for item in dataclasses.fields(schema)]


def test_train_yaml_holds_exactly_the_keys_of_its_schema():
    nodes = {choice.name for choice in default_choices("train")}
    items = [item.name for item in dataclasses.fields(SCHEMAS["train"])]
    assert nodes - {"experiment"} == {
        name for name in items if dataclasses.is_dataclass(getattr(SCHEMAS["train"](), name))
    }
    assert list(content("train.yaml")) == [name for name in items if name not in nodes]


def test_defaults_of_the_dataclasses_are_those_that_train_composes():
    assert plain(composition.compose("train", [])) == dataclasses.asdict(SCHEMAS["train"]())


def test_the_schemas_of_options_have_the_defaults_of_their_files():
    for (group, option), schema in GROUP_SCHEMAS.items():
        assert content(f"{group}/{option}.yaml") == dataclasses.asdict(schema()), (group, option)


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
        assert set(key_types(command)) - composed == {"optim.beta1", "optim.beta2", "optim.eps"}


def test_options_are_listed_by_number():
    assert GROUPS["model"][:4] == ["resnet10", "resnet18", "resnet34", "resnet50"]


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
