"""Rows by name: ours and those of installed packages, listed without an import; what is said when one fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from plugin_package import install_package

from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row, check_settings, defaults

GROUP = "svtoolkit.sounds"


@dataclass
class Settings:
    name: str = "???"
    volume: float = 0.5


ROWS = {
    "ours": Row("json:dumps", arguments={"sort_keys": True}, help="a sound of ours"),
    "other": Row("json:loads", Settings),
}
THEIRS = """
    from dataclasses import dataclass
    from test_registry import Settings
    from svtoolkit.registry import Row

    @dataclass
    class Louder(Settings):
        gain: int = 2

    def build():
        return "built"

    row = Row("theirs:build", Louder)
    plain = Row("theirs:build")
    nowhere = Row("theirs:missing")
    not_a_row = {"target": "theirs:build"}
    foreign = Row("theirs:build", dict)
"""


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Callable[..., Registry]:
    """A registry beside packages: install(name, source, **entry points)."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)

    def install(name: str = "theirs", source: str = THEIRS, version: str = "0.1", **points: str) -> Registry:
        install_package(tmp_path, name, source, {GROUP: points}, version)
        return Registry("sound", GROUP, ROWS, Settings)

    return install


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def test_our_rows():
    sounds = Registry("sound", GROUP, ROWS)
    assert list(sounds) == ["ours", "other"]
    assert len(sounds) == 2
    assert dict(sounds) == ROWS
    assert "ours" in sounds
    assert all(name not in sounds for name in ("theirs", "", None, []))
    row = sounds["ours"]
    assert sounds.load("ours")({"b": 1, "a": 2}, **row.arguments) == '{"a": 2, "b": 1}'


def test_a_row_without_settings_has_those_of_its_kind():
    assert Registry("sound", GROUP, ROWS)["ours"].settings is None
    assert Registry("sound", GROUP, ROWS, Settings)["ours"].settings is Settings


def test_a_package_adds_a_row(installed):
    sounds = installed(echo="theirs:row", quiet="theirs:plain")
    assert list(sounds) == ["ours", "other", "echo", "quiet"]
    assert "theirs" not in sys.modules  # names are listed without importing anything
    assert sounds.load("echo")() == "built"
    assert (sounds["echo"].settings.__name__, sounds["quiet"].settings) == ("Louder", Settings)


@pytest.mark.parametrize(("name", "near"), [("echoo", "echo"), ("OURS", "ours"), ("zzz", None), (None, None)])
def test_an_unknown_name(installed, name, near):
    message = refusal(lambda: installed(echo="theirs:row")[name])
    assert f"there is no sound {name!r}" in message
    assert (f"did you mean {near!r}?" in message) == (near is not None)
    assert "all: ours, other, echo" in message
    assert "install that package" in message
    assert f"entry point {name} in the group svtoolkit.sounds" in message


@pytest.mark.parametrize(
    ("point", "source", "words"),
    [
        ("theirs:row", "raise OSError('no libsound.so')", ["cannot be imported", "OSError: no libsound.so"]),
        ("theirs:row", "import not_there", ["cannot be imported", "No module named 'not_there'"]),
        ("theirs:gone", THEIRS, ["cannot be imported", "has no attribute 'gone'"]),
        ("theirs:not_a_row", THEIRS, ["is a dict", "expected a svtoolkit.registry.Row"]),
        ("theirs:foreign", THEIRS, ["<class 'dict'>", "derives from test_registry.Settings"]),
    ],
)
def test_a_package_that_adds_no_row(installed, point, source, words):
    sounds = installed(source=source, echo=point)
    assert "echo" in sounds
    message = refusal(lambda: sounds["echo"])
    assert "sound 'echo'" in message
    assert "theirs" in message
    assert all(word in message for word in words), message


def test_a_target_that_is_not_there(installed):
    message = refusal(lambda: installed(echo="theirs:nowhere").load("echo"))
    assert "sound 'echo' is added by theirs (theirs:missing), which cannot be imported" in message
    assert "repair or reinstall that package" in message


def test_a_name_that_is_taken(installed):
    sounds = installed(ours="theirs:row")
    assert list(sounds) == ["ours", "other"]
    assert "sound 'ours' is added by svtoolkit and by theirs; uninstall" in refusal(lambda: sounds["ours"])
    sounds["other"]


def test_two_packages_with_one_name(installed):
    installed(echo="theirs:row")
    sounds = installed("others", THEIRS, echo="others:row")
    message = refusal(lambda: sounds["echo"])
    assert "by theirs" in message
    assert "by others" in message


def test_a_package_that_is_found_twice_is_one(installed, tmp_path, monkeypatch):
    sounds = installed(echo="theirs:row")
    monkeypatch.syspath_prepend(install_package(tmp_path / "again", "theirs", THEIRS, {GROUP: {"echo": "theirs:row"}}))
    assert sounds["echo"].target == "theirs:build"


@dataclass
class AllTypes:
    name: str = "???"
    count: int = 1
    share: float = 0.5
    on: bool = False
    word: str = "a"
    width: int | None = None
    pair: list[float] = field(default_factory=lambda: [0.0, 1.0])
    way: Literal["up", "down"] = "up"
    required: float = "???"  # type: ignore[assignment]


@pytest.mark.parametrize(
    "values",
    [
        {"count": 0, "share": 1, "on": True, "word": ""},
        {"width": None, "pair": [], "way": "down"},
        {"width": 3, "pair": (1, 2.5), "required": -1.0, "beside": 4},
    ],
)
def test_settings_of_the_right_type(values):
    check_settings("sound x", AllTypes, values, beside={"beside": int})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("count", 1.0, "a whole number"),
        ("count", True, "a whole number"),
        ("share", "0.5", "a finite number"),
        ("share", float("nan"), "a finite number"),
        ("share", float("inf"), "a finite number"),
        ("share", False, "a finite number"),
        ("on", 1, "true or false"),
        ("word", 3, "text"),
        ("width", 2.0, "a whole number or null"),
        ("pair", 1.0, "a list, each item a finite number"),
        ("pair", [1.0, None], "a list, each item a finite number"),
        ("way", "left", "one of up, down"),
        ("beside", "4", "a whole number"),
    ],
)
def test_settings_of_another_type(key, value, expected):
    message = refusal(lambda: check_settings("sound x", AllTypes, {key: value}, beside={"beside": int}))
    assert message == f"sound x: {key} is {value!r}, expected {expected}"


def test_an_unknown_setting():
    message = refusal(lambda: check_settings("sound x", Settings, {"volum": 1.0}))
    assert message == "sound x has no option 'volum'; did you mean 'volume'? valid are volume"


def test_defaults():
    found = defaults(AllTypes)
    assert found == {
        "count": 1, "share": 0.5, "on": False, "word": "a", "width": None, "pair": [0.0, 1.0], "way": "up"
    }  # fmt: skip
    assert found["pair"] is not defaults(AllTypes)["pair"]


REGISTRIES = [
    "svtoolkit.corpora.registry",
    "svtoolkit.losses.registry",
    "svtoolkit.models.front_ends",
    "svtoolkit.models.registry",
    "svtoolkit.optim.registry",
]


@pytest.mark.parametrize("module", REGISTRIES)
def test_listing_imports_no_torch(module, tmp_path):
    code = f"import sys, {module} as m; [list(r) for r in vars(m).values() if hasattr(r, 'entry_points')]"
    code += "; assert not {'torch', 'numpy', 'soundfile'} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
