"""Every setting has one home, the field of a dataclass; every file of conf/ composes; the command line wins."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from functools import cache
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from paths import ROOT

from svtoolkit import composition
from svtoolkit.composition import Catalogue
from svtoolkit.composition.groups import GROUPS, group_classes
from svtoolkit.composition.keys import described_keys, key_types
from svtoolkit.config import COMMANDS, REQUIRED
from svtoolkit.losses import MarginSchedule
from svtoolkit.models import list_models
from svtoolkit.models.registry import NETWORKS
from svtoolkit.optim import LearningRateSchedule

FOLDER = ROOT / "conf" / "experiment"
EXPERIMENTS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
OPTIONS = [(group, option) for group, options in GROUPS.items() for option in options]
FAMILIES = list({option.settings.__class__: name for name, option in GROUPS["model"].items()}.values())
"""A network of every set of keys."""
CHANGED = {
    "data.crop_frames": 77, "features.num_bins": 33, "model.embedding_dim": 99, "memory.exact_bits": 9,
    "loss.margin": 0.123, "margin_schedule.initial": 0.011, "optim.lr": 0.0345, "schedule.warmup": 0.0678,
    "compress.name": "another", "pairwise.name": "another", "distillation.weight": 0.0123,
    "augment.probability": 0.091, "validation.speakers": 3, "trainer.epochs": 7,
}  # fmt: skip
"""A key of every group, with a value that no option and no experiment has."""


def leaves(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(
            leaves(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
        )
    return flat


def composed(*overrides: str, command: str = "train") -> dict[str, Any]:
    """Dotted key -> value."""
    return leaves(OmegaConf.to_container(composition.compose(command, list(overrides))))


def test_conf_holds_nothing_but_experiments():
    assert {path.relative_to(ROOT / "conf").as_posix() for path in (ROOT / "conf").rglob("*")} == {
        "experiment", *(f"experiment/{name}.yaml" for name in EXPERIMENTS)
    }  # fmt: skip
    assert Catalogue("train").options["experiment"] == EXPERIMENTS


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_key_has_help_that_says_more_than_its_name(command):
    entries = described_keys(command)
    shown = composed(command=command)
    assert len(entries) == len(shown)
    assert {entry.name for entry in entries} == set(shown)
    for entry in entries:
        assert len(entry.text) > 1, entry
        assert entry.text != entry.name.rpartition(".")[2]
        default = OmegaConf.to_container(OmegaConf.create(f"value: {entry.default}"), resolve=False)["value"]
        assert default == (pytest.approx(shown[entry.name], rel=1e-5) if type(default) is float else shown[entry.name])


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_to_its_settings(group, option):
    settings = GROUPS[group][option].settings
    config = composition.load("train", [f"{group}={option}", "exp_dir=x", "data.train=y"])
    found = dataclasses.asdict(getattr(config, group))
    assert found == {**dataclasses.asdict(settings), **({"train": "y"} if group == "data" else {})}
    if hasattr(settings, "name"):
        assert settings.name == option
    for item in dataclasses.fields(settings):
        assert len(item.metadata["help"]) > 1
        assert f"{group}.{item.name}" in key_types("train")


@pytest.mark.parametrize("command", ["memory", "train"])
def test_what_is_composed_by_default_is_what_the_dataclass_has(command):
    assert composed(command=command) == leaves(dataclasses.asdict(COMMANDS[command].settings()))


def test_what_training_and_its_memory_have_in_common_has_the_same_defaults():
    train, memory = COMMANDS["train"].settings(), COMMANDS["memory"].settings()
    for group in group_classes("memory"):
        assert getattr(train, group) == getattr(memory, group)
    assert memory.frames == train.data.crop_frames
    assert memory.num_bins == train.features.num_bins
    assert (memory.precision, memory.channels_last) == (train.trainer.precision, train.trainer.channels_last)


def test_a_command_has_the_groups_of_its_schema_alone():
    assert list(Catalogue("memory").options) == ["distillation", "loss", "memory", "model", "optim"]
    assert set(Catalogue("train").options) == {*GROUPS, "experiment"}
    assert Catalogue("models").options == Catalogue("embed").options == {}


@pytest.mark.parametrize("option", GROUPS["memory"])
def test_a_command_and_a_group_of_one_name_do_not_get_in_each_other_s_way(option):
    assert composition.compose("memory", [f"memory={option}", "frames=7"]).memory.strategy == option
    assert composition.compose("memory", [f"memory={option}", "frames=7"]).frames == 7
    assert composition.compose("train", [f"memory={option}"]).memory.strategy == option


def test_there_is_an_option_for_every_network_of_the_registry_and_for_no_other():
    assert set(GROUPS["model"]) == set(list_models())


@pytest.mark.parametrize("option", GROUPS["model"])
def test_a_network_has_all_options_of_its_family_and_no_other(option):
    keys = {item.name for item in dataclasses.fields(GROUPS["model"][option].settings)}
    assert keys == {item.name for item in dataclasses.fields(NETWORKS[option].settings)}


def test_options_are_listed_by_number():
    resnets = [option for option in Catalogue("train").options["model"] if option.startswith("resnet")]
    assert resnets[:4] == ["resnet10", "resnet18", "resnet34", "resnet50"]


def test_what_is_required():
    assert {key for key, value in composed().items() if value == REQUIRED} == {"exp_dir", "data.train"}


# ---- experiments, read here without the program's own reader ----


@cache
def said(experiment: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Choices and values of an experiment, those of what it is based on included; not to be changed."""
    content = yaml.safe_load((FOLDER / f"{experiment}.yaml").read_text(encoding="utf-8"))
    choices: dict[str, str] = {}
    values: dict[str, Any] = {}
    own: dict[str, str] = {}
    for item in content.pop("defaults", []):
        if isinstance(item, str):
            base_choices, base_values = said(item)
            choices |= base_choices
            values |= base_values
        else:
            own |= {key.removeprefix("override /"): option for key, option in item.items()}
    values = {key: value for key, value in values.items() if not replaces(choices, key, own)}
    return choices | own, values | leaves(content)


def replaces(choices: dict[str, str], key: str, chosen: dict[str, str]) -> bool:
    """Whether a choice on top takes the place of what is said of a key below it."""
    group = key.partition(".")[0]
    if group not in chosen:
        return False
    below = choices.get(group, DEFAULTS.get(group))
    return chosen[group] != below and chosen[group] not in DERIVED.get(below, ())


DERIVED = {"sgd": ["sgd_8bit"], "adamw": ["adamw_8bit"], "aam": ["aam_subcenter", "aam_topk", "sphereface2"],
           "none": ["trace_norm", "l2", "angular_prototypical"]}  # fmt: skip
"""Options with the keys of another one and further ones."""


DEFAULTS = {
    "data": "crops200", "features": "fbank80", "model": "resnet34", "memory": "auto", "loss": "aam", "optim": "sgd",
    "margin_schedule": "exponential", "schedule": "exponential", "augment": "specaug", "validation": "held_out",
    "trainer": "default", "compress": "none", "distillation": "cosine", "pairwise": "none",
}  # fmt: skip


def expected(experiment: str, group: str | None = None, option: str | None = None) -> dict[str, Any]:
    """What the rule says that comes out, by dotted key; some keys are left to the defaults of the program."""
    choices, values = said(experiment)
    chosen = {} if group is None else {group: option}
    kept = {key: value for key, value in values.items() if not replaces(choices, key, chosen)}
    found: dict[str, Any] = {}
    for name, choice in {**DEFAULTS, **choices, **chosen}.items():
        found |= leaves({name: dataclasses.asdict(GROUPS[name][choice].settings)})
    return found | kept


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_is_what_its_file_says(experiment):
    text = (FOLDER / f"{experiment}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    found = composed(f"experiment={experiment}", "data.train=y")
    assert found == {**found, **expected(experiment), "data.train": "y"}
    of_a_run = {"exp_dir", "seed", "resume", "init_from", "init_head", "front_end"}
    assert set(found) - set(expected(experiment)) <= of_a_run
    assert composition.load("train", [f"experiment={experiment}", "exp_dir=x", "data.train=y"])


@pytest.mark.parametrize(("experiment", "group"), list(itertools.product(EXPERIMENTS, GROUPS)))
def test_a_group_on_the_command_line_replaces_what_the_experiment_says_of_it(experiment, group, caplog):
    """But for options that derive from the experiment's own, which keep its values; a key wins over everything."""
    caplog.set_level(logging.INFO, "svtoolkit")
    (key,) = (key for key in CHANGED if key.startswith(f"{group}."))
    for option in FAMILIES if group == "model" else GROUPS[group]:
        caplog.clear()
        found = composed(f"experiment={experiment}", f"{group}={option}")
        wanted = expected(experiment, group, option)
        assert {name: found[name] for name in wanted} == wanted, option
        choices, values = said(experiment)
        dropped = [name for name in values if replaces(choices, name, {group: option})]
        assert len(caplog.messages) == bool(dropped)
        assert all(name in caplog.messages[0] for name in dropped)
    order = [f"{key}={CHANGED[key]}", f"{group}={option}", f"experiment={experiment}"]
    assert composed(*order) == found | {key: CHANGED[key]}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_run_is_shortened_by_one_key(experiment):
    """With any number of epochs rate and margin go all their way."""
    for epochs in (1, 2, 7):
        words = [f"experiment={experiment}", f"trainer.epochs={epochs}", "exp_dir=x", "data.train=y"]
        config = composition.load("train", words)
        total = 40 * epochs
        rate = LearningRateSchedule(**dataclasses.asdict(config.schedule), lr=config.optim.lr, total_steps=total)
        margin = MarginSchedule(
            **dataclasses.asdict(config.margin_schedule), final=config.loss.margin, total_steps=total
        )
        rates = [rate(step) for step in range(total + 1)]
        assert 0.5 * config.optim.lr < max(rates) <= config.optim.lr
        assert rates[-1] == pytest.approx(config.schedule.end_factor * config.optim.lr)
        assert margin(total // 2) == margin(total) == config.loss.margin > 0


def test_what_the_command_line_says_is_not_undone():
    adamw = composition.compose("train", ["experiment=mini", "optim=adamw", "validation=none"])
    assert (adamw.optim.lr, adamw.optim.name, adamw.validation.speakers) == (1e-3, "adamw", 0)
    plain = composition.compose("train", ["experiment=voxceleb", "augment=none"])
    assert (plain.augment.probability, plain.augment.dither) == (0.0, 0.0)
    narrow = composition.compose("train", ["experiment=voxceleb_adamw", "optim=adamw_8bit"])
    assert (narrow.optim.name, narrow.optim.lr, narrow.optim.block_size) == ("adamw_8bit", 5e-4, 2048)


# ---- a folder of one's own ----


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "augment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - mini\n  - override /augment: loud\n  - _self_\ntrainer: {epochs: 3}\n"
        "optim:\n  lr: 1e-2\n"
    )
    (tmp_path / "augment" / "loud.yaml").write_text("defaults: [none, _self_]\nprobability: 0.9\n")
    return tmp_path


def refusal(*overrides: str) -> str:
    with pytest.raises(composition.UserError) as caught:
        composition.compose("train", list(overrides))
    return str(caught.value)


def test_experiments_and_presets_of_a_folder(folder):
    found = composed(f"config_dir={folder}", "experiment=mine")
    assert (found["trainer.epochs"], found["optim.lr"], found["model.name"]) == (3, 0.01, "resnet10")
    assert (found["augment.probability"], found["augment.dither"]) == (0.9, 0.0)
    assert composed(f"config_dir={folder}", "augment=loud")["augment.probability"] == 0.9
    assert composed(f"config_dir={folder}", "experiment=mine", "augment=specaug")["augment.probability"] == 0.6
    assert composed(f"config_dir={folder}", "experiment=mini", "augment=loud")["augment.probability"] == 0.9


def test_an_experiment_by_path(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "alone.yml").write_text("defaults: voxceleb\nseed: 5\n")
    found = composed("experiment=alone.yml")
    assert (found["seed"], found["augment.spec_probability"]) == (5, 0.0)
    assert "nowhere.yaml: there is no such file" in refusal("experiment=nowhere.yaml")


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("optim: {lrr: 0.1}", ["no key 'optim.lrr'", "did you mean 'optim.lr'?"]),
        ("epochs: 3", ["no key 'epochs'", "did you mean 'trainer.epochs'?"]),
        ("trainer: {epochs: many}", ["trainer.epochs is 'many'", "a whole number"]),
        ("optim: {beta1: 0.9}", ["optim=sgd has no key 'optim.beta1'", "optim=adamw"]),
        ("defaults: [minni]", ["no experiment 'minni'", "did you mean 'mini'?"]),
        ("defaults: [mine]", ["based on itself"]),
        ("defaults: [{override /optim: adam}]", ["optim has no option 'adam'", "did you mean 'adamw'?"]),
        ("defaults: [{override /optimizer: sgd}]", ["override /optimizer", "override /GROUP: OPTION"]),
        ("defaults: [_self_, mini]", ["'_self_'"]),
        ("model: resnet10", ["no key 'model'"]),
        ("a: [", ["cannot be read as YAML"]),
        ("seed: 1\nseed: 2", ["cannot be read as YAML", "seed"]),
        ("- 1", ["expected keys and values"]),
    ],
)
def test_mistakes_in_a_file_name_it(folder, content, messages):
    file = folder / "experiment" / "mine.yaml"
    file.write_text(content)
    message = refusal(f"config_dir={folder}", "experiment=mine")
    assert message.startswith(f"{file}: ")
    assert [part for part in messages if part not in message] == []


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("probabilty: 0.9", "did you mean 'augment.probability'?"),
        ("defaults: [quiet]", "augment has no option 'quiet'"),
        ("defaults: [loud]", "one other option of augment"),
        ("defaults: [none, specaug]", "one other option of augment"),
        ("probability: often", "augment.probability is 'often'"),
    ],
)
def test_mistakes_in_a_preset_name_it(folder, content, part):
    file = folder / "augment" / "loud.yaml"
    file.write_text(content)
    message = refusal(f"config_dir={folder}", "augment=loud")
    assert message.startswith(f"{file}: ")
    assert part in message


def test_a_folder_that_is_not_there_and_a_name_that_is_ours(folder):
    assert "nowhere: there is no such folder" in refusal("config_dir=nowhere")
    (folder / "augment" / "none.yaml").write_text("probability: 0.9\n")
    assert "none.yaml: svtoolkit has augment=none of its own; rename" in refusal(f"config_dir={folder}")
