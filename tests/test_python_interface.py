"""svtoolkit from Python: light to import, typed, and the same as the commands."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from tiny_runs import assert_same_run, command_words, tiny_config

import svtoolkit
from svtoolkit.errors import UserError

MYPY = """
[mypy]
[mypy-torch.*,scipy.*,sklearn.*,soundfile.*,soxr.*,fsspec.*,safetensors.*,omegaconf.*,hydra.*]
follow_imports = skip
ignore_missing_imports = true
"""
"""What the types of the snippets do not depend on is not read: torch alone takes half a minute."""

SLOW = ("torch", "numpy", "omegaconf", "scipy", "soundfile", "yaml")


def python(*words: str) -> str:
    run = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout


def test_importing_svtoolkit_imports_nothing_slow():
    loaded = f"[name for name in {SLOW!r} if name in sys.modules]"
    code = f"import json, sys, svtoolkit; dir(svtoolkit); print(json.dumps({loaded}))"
    assert json.loads(python("-c", code)) == []
    assert json.loads(python("-c", code.replace("dir(svtoolkit)", "import yaml"))) == ["yaml"]


def test_the_package_runs_as_the_command():
    assert python("-m", "svtoolkit", "--version") == f"svtoolkit {svtoolkit.__version__}\n"


def test_what_is_offered_is_there():
    assert set(svtoolkit.__all__) <= set(dir(svtoolkit))
    for name in svtoolkit.__all__:
        assert getattr(svtoolkit, name) is not None
    with pytest.raises(AttributeError, match="module 'svtoolkit' has no attribute 'trian'"):
        _ = svtoolkit.trian  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in svtoolkit.__all__ if name != "__version__"])
def test_every_name_that_is_offered_is_annotated_and_described(name):
    offered = getattr(svtoolkit, name)
    methods = [] if inspect.isfunction(offered) else [each for name, each in vars(offered).items() if name[:2] != "__"]
    functions = [each for each in [offered, *methods] if inspect.isfunction(each)]
    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        assert all(each.annotation is not each.empty for each in parameters if each.name not in ("self", "cls"))
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty, function
    assert offered.__doc__


# ---- svtoolkit.train ----


@pytest.fixture(scope="module")
def words(speech: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    exp_dir = tmp_path_factory.mktemp("exp") / "run"
    return command_words(tiny_config(speech, exp_dir, trainer__epochs=1))


def test_train_runs_as_the_command(words, finished_once, tmp_path, capsys):
    pairs = dict(word.split("=", 1) for word in words)
    pairs.pop("exp_dir")
    values = {key: json.loads(value) if re.match(r"[\d\[{.-]|true|false|null", value) else value
              for key, value in pairs.items()}  # fmt: skip
    exp_dir = svtoolkit.train(values, exp_dir=tmp_path / "by mapping")
    assert exp_dir == tmp_path / "by mapping"
    assert "finished: " in capsys.readouterr().out
    assert_same_run(exp_dir, finished_once)


@pytest.fixture(scope="module")
def finished_once(words) -> Path:
    """The run of `svtoolkit.train` with a list of words."""
    return svtoolkit.train(words)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optim.lrr=0.1"], "there is no key 'optim.lrr'; did you mean 'optim.lr'"),
        ({"optim": {"lrr": 0.1}}, "there is no key 'optim.lrr'; did you mean 'optim.lr'"),
        ("experiment=mini", r"found the text 'experiment=mini', expected a list of words or a mapping"),
        ({"trainer.epochs": "many", "exp_dir": "x"}, "trainer.epochs is 'many', expected a whole number"),
    ],
)
def test_mistakes_are_those_of_the_command(overrides, message):
    with pytest.raises(UserError, match=message):
        svtoolkit.train(overrides)


@pytest.mark.parametrize(("stopped_by", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_stopped_run_is_no_result(words, monkeypatch, stopped_by, raised):
    monkeypatch.setattr("svtoolkit.commands.train.launch", lambda config: int(stopped_by))
    monkeypatch.setattr("svtoolkit.commands.train.append_command", lambda *_: None)
    with pytest.raises(raised):
        svtoolkit.train(words)


def test_values_of_a_mapping_are_taken_literally():
    from svtoolkit.commands.train import _words
    from svtoolkit.composition import load

    given = {"experiment": "mini", "data": {"train": "it's a,b ${here}", "speeds": [1.0, 1.1], "root": None},
             "augment.added": {"polarity": {"probability": 0.25}}, "exp_dir": Path("a b"),
             "data.resample": True, "optim.lr": 1e-5}  # fmt: skip
    config = load("train", [word for word in _words(given) if "added" not in word])
    assert (config.data.train, config.data.speeds, config.data.root) == ("it's a,b ${here}", [1.0, 1.1], None)
    assert (config.exp_dir, config.data.resample, config.optim.lr) == ("a b", True, 1e-5)
    assert "augment.added={polarity:{probability:0.25}}" in _words(given)
    plain = {"exp_dir": "exp/a-1.b", "init_from": "NULL", "data": {"train": Path("/d/1")}, "name": "1e5"}
    assert _words(plain) == ["exp_dir=exp/a-1.b", "init_from='NULL'", "data.train=/d/1", "name='1e5'"]


# ---- types ----


def check_types(code: str, folder: Path) -> str:
    """What mypy --strict finds in a program that uses the installed svtoolkit; empty: nothing."""
    (folder / "snippet.py").write_text(code)
    (folder / "mypy.ini").write_text(MYPY)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "--no-error-summary"]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache" / "snippets")]
    run = subprocess.run([*command, *cache, "snippet.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.stdout


@pytest.fixture
def snippets() -> str:
    """All Python of README."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert any("load_model" in snippet for snippet in found)
    return "\n".join(found)


def test_the_snippets_of_the_readme_are_well_typed(snippets, tmp_path):
    assert check_types(snippets, tmp_path) == ""


def test_pyright_finds_in_the_snippets_what_is_wrong_there_alone(snippets, tmp_path):
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    (tmp_path / "right.py").write_text(snippets)
    (tmp_path / "wrong.py").write_text("import svtoolkit\nsvtoolkit.load_model('x').verify('a.wav')\n")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [(Path(each["file"]).name, each["rule"]) for each in json.loads(run.stdout)["generalDiagnostics"]]
    assert found == [("wrong.py", "reportCallIssue")]


def test_the_check_of_types_can_fail(tmp_path):
    wrong = {
        "model.embed('a.wav', sample_rate='8000')": "arg-type",
        "model.verify('a.wav')": "call-arg",
        "score: str = model.similarity('a.wav', 'b.wav')": "assignment",
        "svtoolkit.train(5)": "arg-type",
    }
    found = check_types("\n".join(["import svtoolkit", "model = svtoolkit.load_model('x')", *wrong]), tmp_path)
    lines = [(int(line), kind) for line, kind in re.findall(r"^snippet\.py:(\d+): error: .*\[(.*)\]$", found, re.M)]
    assert lines == list(enumerate(wrong.values(), start=3))
