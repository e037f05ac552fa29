"""Every `key=` of a message is a key of the command that says it, or of the command that the message names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest
from paths import ROOT

from svtoolkit.composition import Catalogue
from svtoolkit.composition.groups import group_classes
from svtoolkit.composition.keys import key_types
from svtoolkit.config import COMMANDS

PACKAGE = ROOT / "svtoolkit"
KEY = re.compile(r"(?<![\w.{§\-])([a-z][a-z_]*(?:\.[a-z_0-9]+)*)=(?!=)(?![ ,;)]|$)")
OF_ANOTHER = re.compile(r"`svt ([\w-]+)([^`]*)`|train with ([^;,]*)")

OF_SOME_COMMANDS = {
    "svtoolkit.checkpoints.onnx_release": "calibrate convert-model embed report train verify",
    "svtoolkit.checkpoints.wespeaker.release": "calibrate convert-model embed report train verify",
    "svtoolkit.audio.pipes": "convert",
    "svtoolkit.augmentation": "train",
    "svtoolkit.corpora": "prepare",
    "svtoolkit.crops": "train",
    "svtoolkit.data.audio_table": "train",
    "svtoolkit.data.conversion": "convert",
    "svtoolkit.data.sharding": "shard",
    "svtoolkit.data.validation": "validate",
    "svtoolkit.distributed": "train",
    "svtoolkit.features": "train",  # a model.yaml has them under the same names
    "svtoolkit.losses.registry": "train memory",
    "svtoolkit.losses.schedule": "train",
    "svtoolkit.memory.strategies.reversible": "train memory",
    "svtoolkit.optim.by_import_path": "train memory",
    "svtoolkit.planning.teacher": "train memory plan",
    "svtoolkit.planning.memory_prediction": "memory",
    "svtoolkit.planning.micro_batch": "train",
    "svtoolkit.reporting.systems": "report",
    "svtoolkit.runs.epoch_weights": "average",
    "svtoolkit.runs.exp_dir": "train",
    "svtoolkit.scoring.enrolment": "score",
    "svtoolkit.scoring.evaluation": "evaluate",
    "svtoolkit.scoring.extraction": "embed",
    "svtoolkit.scoring.metrics": "calibrate evaluate",
    "svtoolkit.training.crossval_settings": "crossval",
    "svtoolkit.training": "train",
}
"""Rooms whose messages reach the user by these commands alone, though others import something of them."""

OF_TRAINING = {("svtoolkit.audio.files", "features.sample_rate")}
"""Said where the caller is ``svt train`` alone."""

NO_KEYS = {"framewise", "inplace", "retain_graph", "scale", "margin"}
"""Words before an equals sign that are arguments in Python or of a formula, and say so."""


def messages(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string but docstrings and help; what is filled in is §."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(inner) for inner in ast.walk(node) if inner is not node}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "§" for part in node.values)
            yield node.lineno, "".join(map(str, parts))


@cache
def graph() -> grimp.ImportGraph:
    found = grimp.build_graph("svtoolkit", exclude_type_checking_imports=True)
    crossval = "svtoolkit.commands.crossval"
    for other in found.find_modules_directly_imported_by(crossval):
        if other.startswith("svtoolkit.commands."):  # which speak of their own keys
            found.remove_import(importer=crossval, imported=other)
    return found


@cache
def commands_of(module: str) -> frozenset[str]:
    """Commands that import a module, or that alone say what is in it."""
    for room, commands in OF_SOME_COMMANDS.items():
        if module == room or module.startswith(f"{room}."):
            return frozenset(commands.split())
    own = module.removeprefix("svtoolkit.commands.").replace("_", "-")
    if own in COMMANDS:
        return frozenset([own])
    return frozenset(
        command
        for command in COMMANDS
        if graph().chain_exists(importer=f"svtoolkit.commands.{command.replace('-', '_')}", imported=module)
    )


@cache
def keys_of(command: str) -> frozenset[str]:
    return frozenset([*key_types(command), *group_classes(command), *Catalogue(command).options])


def wrong_keys(module: str, text: str) -> Iterator[str]:
    for named, words, trained in OF_ANOTHER.findall(text):
        command = named if named else "train"
        if command in COMMANDS:
            yield from (
                f"{key}= is no key of svt {command}"
                for key in KEY.findall(words or trained)
                if key not in keys_of(command)
            )
    for key in KEY.findall(OF_ANOTHER.sub("", text)):
        speaking = {"train"} if (module, key) in OF_TRAINING else commands_of(module)
        refusing = sorted(command for command in speaking if key not in keys_of(command))
        if refusing and key not in NO_KEYS:
            yield f"{key}= is no key of svt {', svt '.join(refusing)}"


def modules() -> Iterator[tuple[str, Path]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        # cli, composition and config speak of any key; the library's own classes have no command.
        if not name.startswith(("svtoolkit.cli", "svtoolkit.composition", "svtoolkit.config", "svtoolkit.registry")):
            yield name, file


@pytest.mark.parametrize(("module", "file"), [pytest.param(*found, id=found[0]) for found in modules()])
def test_keys_of_messages_are_keys_of_the_command(module, file):
    found = [
        f"{file.relative_to(ROOT)}:{line}: {fault}"
        for line, text in messages(file)
        for fault in wrong_keys(module, text)
    ]
    assert found == []


def test_a_wrong_key_is_found():
    assert list(wrong_keys("svtoolkit.commands.verify", "allow data.resample=true")) == [
        "data.resample= is no key of svt verify"
    ]
    assert list(wrong_keys("svtoolkit.commands.verify", "allow resample=true")) == []
    assert list(wrong_keys("svtoolkit.commands.verify", "`svt prepare corpse=folders source=[a]`")) == [
        "corpse= is no key of svt prepare"
    ]
    assert list(wrong_keys("svtoolkit.crops.crop", "channel=0")) == ["channel= is no key of svt train"]
