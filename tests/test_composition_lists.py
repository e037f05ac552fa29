"""One value where a list is taken: a list of it alone, whichever way it is given."""

from __future__ import annotations

import pytest
import yaml
from omegaconf import OmegaConf

from svtoolkit import composition
from svtoolkit.cli import parse_words
from svtoolkit.commands.train import _words
from svtoolkit.composition.keys import key_types
from svtoolkit.config import COMMANDS
from svtoolkit.errors import UserError

LISTS = [
    (command, key, annotation)
    for command in COMMANDS
    for key, annotation in key_types(command).items()
    if annotation.startswith("list[") and annotation != "list[Any]"
]
OF_TRAIN = {key: annotation for command, key, annotation in LISTS if command == "train"}
ONE = {"list[str]": "2024_01 a", "list[int]": 3, "list[float]": 2.5, "list[float] | None": 2.5}


CHOSEN = {"compress.layers": "compress=trace_norm", "memory.seconds": "memory=planned"}
"""A key that the options by default do not have -> the choice of one that has it."""


def taken(command: str, key: str, words: list[str]) -> object:
    chosen = [CHOSEN[key]] if command in ("train", "crossval", "memory") and key in CHOSEN else []
    return OmegaConf.select(composition.compose(command, [*chosen, *words]), key)


def test_every_kind_of_list_is_among_them():
    assert {annotation for _, _, annotation in LISTS} == set(ONE) == set(OF_TRAIN.values())
    assert OF_TRAIN["trainer.loggers"] == "list[str]"


@pytest.mark.parametrize(("command", "key", "annotation"), LISTS, ids=[f"{command} {key}" for command, key, _ in LISTS])
def test_on_the_command_line(command, key, annotation):
    one = ONE[annotation]
    for words in ([f"{key}={one}"], [f"--{key}", str(one)], [f"{key}=[{one}]"]):
        assert taken(command, key, parse_words(command, words)[0]) == [one], words


def test_in_an_experiment_of_one_s_own(tmp_path):
    file = tmp_path / "mine.yaml"
    content: dict[str, dict[str, object]] = {}
    for key, annotation in OF_TRAIN.items():
        group, name = key.split(".")
        content.setdefault(group, {})[name] = ONE[annotation]
    file.write_text(yaml.safe_dump(content))
    node = composition.compose("train", [f"experiment={file}", *CHOSEN.values()])
    assert {key: OmegaConf.select(node, key) for key in OF_TRAIN} == {
        key: [ONE[annotation]] for key, annotation in OF_TRAIN.items()
    }


def test_a_list_of_lists():
    node = composition.compose("train", ["model=redimnet", "model.stages=[[1,2,1,12],[2,2,1,null]]"])
    assert node.model.stages == [[1, 2, 1, 12], [2, 2, 1, None]]
    assert taken("train", "model.stages", ["model=redimnet", "model.stages=3"]) == [3]
    with pytest.raises(
        UserError, match=r"model\.stages is '1,2', expected a list of lists such as \[\[1,2\],\[2,2\]\]"
    ):
        composition.compose("train", ["model=redimnet", "model.stages=1,2"])


def test_from_python():
    words = _words({"trainer": {"loggers": "csv"}, "data.speeds": 1.0})
    assert taken("train", "trainer.loggers", words) == ["csv"]
    assert taken("train", "data.speeds", words) == [1.0]


@pytest.mark.parametrize(("command", "key", "annotation"), LISTS, ids=[f"{command} {key}" for command, key, _ in LISTS])
def test_several_need_brackets(command, key, annotation):
    several = "1,2" if "str" not in annotation else "a,b"
    with pytest.raises(UserError, match=rf"^svt {command}: {key} is '{several}', expected a list ") as caught:
        taken(command, key, [f"{key}={several}"])
    remedy = f"; `--{key} VALUE` takes one text literally, commas included"
    assert str(caught.value).endswith(remedy) == (annotation == "list[str]")


def test_a_comma_within_one_text():
    for words in (["--source", "a,b"], ["source='a,b'"], ["source=['a,b']"]):
        assert taken("prepare", "source", parse_words("prepare", words)[0]) == ["a,b"]


def test_another_key_s_list():
    node = composition.compose("report", ["results=${scores}", "scores=[a,b]"])
    assert node.results == ["a", "b"]
