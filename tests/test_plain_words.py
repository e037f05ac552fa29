"""Words that need no grammar are read as composition reads them; all others are left to it."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from svtoolkit import composition, config
from svtoolkit.cli import parse_words
from svtoolkit.config import COMMANDS
from svtoolkit.config.plain_words import plain_settings
from svtoolkit.errors import UserError

VALUES = [
    "a.wav", "exp/r34/model", "0", "1", "-3", "007", "1e3", "0.25", "-0.5", ".5", "1_000", "true", "false", "True",
    "yes", "null", "None", "nan", "inf", "???", "a,b", "[a,b]", "'a'", '"a"', "${x}", "a b", "", "a=b", "~x", "é.wav",
    "C:\\x", "2024_01", "1+2", "@file", "x:y", "99999999999999999999", "-", "--x", "config_dir=x",
]  # fmt: skip
FLAT = [name for name, command in COMMANDS.items() if name not in ("train", "crossval", "features")]


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    command = draw(st.sampled_from(FLAT))
    keys = [item.name for item in fields(COMMANDS[command].settings)] + ["nonsense"]
    named = st.builds(lambda key, value: f"{key}={value}", st.sampled_from(keys), st.sampled_from(VALUES))
    return command, draw(st.lists(st.sampled_from(VALUES) | named, max_size=6))


def composed(command: str, words: list[str]) -> object:
    try:
        overrides, show = parse_words(command, words)
        return "shown" if show else composition.load(command, overrides)
    except UserError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(line=lines())
@example(line=("archives", ["folder=", "folder=a.wav"]))
def test_what_is_read_is_what_is_composed(line):
    try:
        found = plain_settings(*line)
    except UserError as error:
        found = str(error)
    if found is not None:
        assert found == composed(*line)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("verify", "r34.onnx a.wav b.wav"),
        ("verify", "r34.onnx a.wav b.wav c.wav threshold=0.25 resample=true channel=1"),
        ("verify", "r34.onnx test=b.wav name=anna store=speakers.db threshold=null"),
        ("enrol", "anna monday.wav tuesday.wav store=speakers.db model=r34.onnx"),
        ("identify", "test.wav store=speakers.db model=r34.onnx n=3"),
        ("embed", "model=r34.onnx data=data/eval out=exp/eval runtime=openvino num_workers=2"),
        ("compare", "a.json b.json out=exp/compared"),
    ],
)
def test_usual_words_are_read_without_a_grammar(command, words):
    found = plain_settings(command, words.split())
    assert found is not None
    assert found == composed(command, words.split())


@pytest.mark.parametrize("words", ["", "m a.wav b.wav --threshold 1", "m a.wav b.wav nonsense=1", "m a.wav test='b c'"])
def test_other_words_are_left_to_composition(words):
    assert plain_settings("verify", words.split()) is None


def test_groups_are_left_to_composition():
    assert plain_settings("train", ["data.train=d", "exp_dir=e"]) is None
    assert plain_settings("features", ["data=d", "out=o"]) is None


def test_limits_hold():
    with pytest.raises(UserError, match="threads"):
        plain_settings("embed", ["model=m", "data=d", "out=o", "threads=1000000"])


def test_every_setting_is_found_where_the_package_says():
    tree = ast.parse(Path(config.__file__).read_text(encoding="utf-8"))
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("svtoolkit.config.")
        for alias in node.names
    ]
    assert len(names) > 60
    for name in names:
        assert getattr(config, name) is not None
