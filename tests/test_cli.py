"""The `svt` command: what it makes of its words, what it prints, and its exit statuses."""

from __future__ import annotations

import errno
import importlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import types

import pytest
import yaml
from paths import ROOT

import svtoolkit
import svtoolkit.__main__
from svtoolkit import composition
from svtoolkit.cli import main, parse_words
from svtoolkit.errors import UserError
from svtoolkit.system import signals


def svt(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "svtoolkit.cli", *words],
        cwd=ROOT, capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


@pytest.fixture
def command(monkeypatch):
    """Puts a function in the place of the module of `svt verify`."""

    def replace(run):
        module = types.ModuleType("svtoolkit.commands.verify")
        module.run = run
        monkeypatch.setitem(sys.modules, "svtoolkit.commands.verify", module)

    return replace


VERIFY = ["verify", "model", "a.wav", "b.wav"]


# ---- words ----


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        (["exp/r34", "num=5"], ["exp_dir='exp/r34'", "num=5"]),
        (["--exp-dir", "exp/r34", "--num=5"], ["exp_dir='exp/r34'", "num='5'"]),
        (["num=5", "it's"], ["num=5", r"exp_dir='it\'s'"]),
        (["--out", "null", "x"], ["out=null", "exp_dir='x'"]),
        (["--out=a=b", "x"], ["out='a=b'", "exp_dir='x'"]),
        (["--out", "-1", "x"], ["out='-1'", "exp_dir='x'"]),
    ],
)
def test_words_become_overrides(words, overrides):
    assert parse_words("average", words) == (overrides, False)


def test_a_list_as_an_option():
    assert parse_words("validate", ["--against", "a b"])[0] == ["against=['a b']"]
    assert parse_words("validate", ["--against", "['a','b']"])[0] == ["against=['a','b']"]
    overrides, _ = parse_words("validate", ["d", "--against", "['a','b']"])
    assert composition.load("validate", overrides).against == ["a", "b"]


def test_a_position_that_takes_a_list_takes_all_words():
    assert parse_words("models", ["revnet*", "format=json", "it's"])[0] == ["format=json", r"names=['revnet*','it\'s']"]
    overrides, _ = parse_words("models", ["revnet*", "it's"])
    assert composition.load("models", overrides).names == ["revnet*", "it's"]
    assert parse_words("models", [])[0] == []


def test_help_shows_which_position_takes_many(capsys):
    assert main(["models", "--help"]) == 0
    assert "usage: svt models [NAMES ...] [key=value ...]" in capsys.readouterr().out


def test_positions_fill_in_order():
    config = composition.load("verify", parse_words("verify", ["m", "a.wav", "b.wav", "--threshold", "0.3"])[0])
    assert (config.model, config.enrol, config.test, config.threshold) == ("m", ["a.wav"], "b.wav", 0.3)


@pytest.mark.parametrize(
    ("words", "enrol", "test"),
    [
        (["m", "a.wav", "b.wav", "c.wav"], ["a.wav", "b.wav"], "c.wav"),
        (["m", "a.wav", "b.wav", "--test", "c.wav"], ["a.wav", "b.wav"], "c.wav"),
        (["m", "--enrol", "it's", "c.wav"], ["it's"], "c.wav"),
        (["m", "--enrol", "a,b.wav", "c.wav"], ["a,b.wav"], "c.wav"),
        (["m", "enrol='a.wav'", "c.wav"], ["a.wav"], "c.wav"),
        (["m", "enrol=[a.wav,b.wav]", "test=c.wav"], ["a.wav", "b.wav"], "c.wav"),
        (["m", "a.wav"], ["a.wav"], None),
        (["m"], [], None),
    ],
)
def test_a_list_in_the_middle_leaves_a_word_for_each_position_after_it(words, enrol, test):
    config = composition.load("verify", parse_words("verify", words)[0])
    assert (config.model, config.enrol, config.test) == ("m", enrol, test)


def test_words_without_a_position_left_are_refused():
    with pytest.raises(UserError, match=r"svt verify: found 'd.wav', expected key=value"):
        parse_words("verify", ["m", "c.wav", "d.wav", "enrol=[a.wav]"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["average", "a", "b"], "svt average: found 'b', expected key=value; see `svt average --help`"),
        (["models", "-x"], "svt models: found '-x', expected key=value; see `svt models --help`"),
        (["train", "data"], "svt train: found 'data', expected key=value; see `svt train --help`"),
        (["average", "-x"], "svt average: found '-x', expected key=value; see `svt average --help`"),
        (["average", "--"], "svt average: found '--', expected key=value; see `svt average --help`"),
        (["average", "--num"], "svt average: --num needs a value, as in `--num VALUE`"),
        (["average", "--num", "--out", "x"], "svt average: --num needs a value, as in `--num VALUE`"),
        (["train", "--config-dir", "x"], "x: there is no such folder; expected that of --config-dir"),
        (["average", "--config-dir", "x"], "svt average: there is no key 'config_dir'; `svt average --help` lists the "
                                           "keys"),
        (["train", "--exp-dirr", "x"], "svt train: there is no key 'exp_dirr'; did you mean 'exp_dir'?"),
        (["train", "--trainer.epoch", "3"], "svt train: there is no key 'trainer.epoch'; "
                                             "did you mean 'trainer.epochs'?"),
        (["average", "--cfg", "hydra"], "svt average: found --cfg hydra, expected --cfg job"),
        (["average", "--cfg"], "svt average: --cfg needs a value, as in `--cfg VALUE`"),
        (["average", "x", "--num", "many"], "svt average: num is 'many', expected a whole number"),
        (["average", "--exp-dir="], "svt average: exp_dir= has no value, expected text; if it came from a shell "
                                    "variable, that is empty"),
        (["validate", "d", "--against="], "svt validate: against= has no value, expected a list such as [a,b]; "
                                          "if it came from a shell variable, that is empty"),
        (["average", ""], "svt average: exp_dir= has no value, expected text; if it came from a shell variable, "
                          "that is empty"),
        (["trian"], "svt has no command 'trian'; did you mean `svt train`?"),
        (["Train"], "svt has no command 'Train'; did you mean `svt train`?"),
        (["evalute"], "svt has no command 'evalute'; did you mean `svt evaluate`?"),
        (["qqqq"], "svt has no command 'qqqq'; `svt --help` lists the commands"),
        (["--verbose"], "svt has no command '--verbose'; `svt --help` lists the commands"),
        (["help", "trian"], "svt has no command 'trian'; did you mean `svt train`?"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_on_stderr(words, message, capsys):
    assert main(words) == 1
    assert capsys.readouterr() == ("", f"error: {message}\n")


# ---- --cfg job ----


def flat(node: dict, prefix: str = "") -> dict:
    leaves = {}
    for key, value in node.items():
        leaves.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return leaves


@pytest.mark.parametrize(
    "words",
    [
        [
            "train",
            "experiment=mini",
            "optim=adamw",
            "optim.beta1=0.8",
            "--exp-dir",
            "it's ${here}",
            "data.speeds=[1.0]",
        ],
        ["score", "trials=t", "--out", "a b", "top_n=20"],
        ["prepare", "--source", "['a','b, c']"],
    ],
)
def test_cfg_job_prints_yaml_that_composes_back(words, capsys):
    assert main([*words, "--cfg", "job"]) == 0
    shown = "".join(line for line in capsys.readouterr().out.splitlines(keepends=True) if not line.startswith("# "))
    again = [words[0], *(word for word in words if word.startswith("optim="))]
    for key, value in flat(yaml.safe_load(shown)).items():
        # what stands in the YAML is OmegaConf's: as an override it needs Hydra's quotes alone
        text = json.dumps(value) if not isinstance(value, str) else "'" + value.replace("'", "\\'") + "'"
        again.append(f"{key}={text}")
    assert main([*again, "--cfg=job"]) == 0
    assert capsys.readouterr().out == shown


def test_cfg_job_runs_nothing_and_needs_nothing_required(command, capsys):
    command(lambda config, command_line: pytest.fail("the command ran"))
    assert main(["verify", "--cfg", "job", "resample=true"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["model"] == "???"
    assert shown["resample"] is True


# ---- running ----


def test_a_command_gets_its_configuration_and_the_line_as_typed(command):
    got = []
    command(lambda config, command_line: got.append((config, command_line)))
    assert main(["verify", "my model", "a.wav", "--test", "b'c.wav", "threshold=0.5"]) == 0
    config, command_line = got[0]
    assert (config.model, config.test, config.threshold) == ("my model", "b'c.wav", 0.5)
    assert command_line == """svt verify 'my model' a.wav --test "b'c.wav" threshold=0.5"""


def test_the_exit_status_is_that_of_the_command(command):
    command(lambda config, command_line: 143)
    assert main(VERIFY) == 143


def test_a_user_error_is_one_line_and_exit_1(command, capsys):
    def run(config, command_line):
        raise UserError("a.wav: there is no such file; check the path")

    command(run)
    assert main(VERIFY) == 1
    assert capsys.readouterr() == ("", "error: a.wav: there is no such file; check the path\n")


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EACCES,
        errno.EROFS,
        errno.ENOTDIR,
        errno.ENOENT,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.EFBIG,
        errno.EIO,
    ],
)
def test_what_the_system_refuses_is_one_line_and_exit_1(command, capsys, number):
    def run(config, command_line):
        raise OSError(number, os.strerror(number), "out/result.json")

    command(run)
    assert main(VERIFY) == 1
    assert capsys.readouterr().err == (
        f"error: out/result.json: {os.strerror(number)}; check the path, its permissions and the free disk, then run "
        "the command again\n"
    )


def test_an_error_of_the_system_without_a_file_keeps_its_traceback(command):
    def run(config, command_line):
        raise OSError(errno.ECHILD, "no child")

    command(run)
    with pytest.raises(OSError, match="no child"):
        main(VERIFY)


def test_an_unexpected_error_keeps_its_traceback(command):
    def run(config, command_line):
        raise RuntimeError("a fault of the program")

    command(run)
    with pytest.raises(RuntimeError, match="a fault of the program"):
        main(VERIFY)


def test_ctrl_c_is_exit_130(command, capsys):
    def run(config, command_line):
        raise KeyboardInterrupt

    command(run)
    assert main(VERIFY) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_ctrl_c_while_modules_are_imported_ends_the_process_at_once(monkeypatch):
    """They take seconds, and packages take a KeyboardInterrupt for something else."""
    handlers: dict[str, object] = {}

    class Watching:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("svtoolkit."):
                handlers[name] = signal.getsignal(signal.SIGINT)

    monkeypatch.setattr(sys, "meta_path", [Watching(), *sys.meta_path])
    for package, name in (("svtoolkit", "cli"), ("svtoolkit.commands", "copy")):
        module = importlib.import_module(f"{package}.{name}")
        monkeypatch.setattr(sys.modules[package], name, module)  # the import below sets it, too
        monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setattr(sys, "argv", ["svt", "copy"])
    assert svtoolkit.__main__.main() == 0
    assert handlers["svtoolkit.cli"] is handlers["svtoolkit.commands.copy"] is signals._leave
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_svtoolkit_logs_is_shown_and_other_libraries_chatter_is_not(command, capsys):
    before = logging.getLogger().handlers[:]

    def run(config, command_line):
        logging.getLogger("svtoolkit.commands.verify").info("shown")
        logging.getLogger("matplotlib").info("chatter")
        logging.getLogger("svtoolkit.data").debug("detail")

    command(run)
    assert main(VERIFY) == 0
    assert main(VERIFY) == 0
    assert capsys.readouterr().out == "shown\nshown\n"
    assert logging.getLogger().handlers == before
    assert logging.getLogger("svtoolkit").level == logging.NOTSET


def piped_to_head(code: str) -> tuple[int, str, str]:
    """Exit status, what `head -1` shows and stderr of a program that writes more than a pipe holds."""
    program = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    first = program.stdout.readline()
    program.stdout.close()
    _, errors = program.communicate(timeout=60)
    return program.returncode, first, errors


CALL = "import sys; from svtoolkit import cli; {}; sys.exit(cli.main({!r}))"


def test_a_reader_that_leaves_gets_no_traceback():
    long_help = "cli.COMMANDS.update({str(n): cli.COMMANDS['train'] for n in range(20000)})"
    status, first, errors = piped_to_head(CALL.format(long_help, ["--help"]))
    assert first.startswith("svtoolkit ")
    assert (status, errors) == (141, "")


def test_a_reader_that_leaves_while_a_command_logs():
    endless = (
        "import types, logging; module = types.ModuleType('svtoolkit.commands.verify');"
        "module.run = lambda config, line: [logging.getLogger('svtoolkit').info('line') for _ in range(200000)] and 0;"
        "sys.modules[module.__name__] = module"
    )
    status, first, errors = piped_to_head(CALL.format(endless, VERIFY))
    assert first == "line\n"
    assert (status, errors) == (141, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["average", "--cfg", "job"]])
def test_a_reader_that_has_left_before_anything_is_written(words, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "svtoolkit.cli", *words],
            cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (run.returncode, run.stderr) == (141, "")


def test_the_module_runs_as_a_program():
    run = svt("train", "optim.lrr=0.1")
    assert run.returncode == 1
    assert run.stderr == "error: svt train: there is no key 'optim.lrr'; did you mean 'optim.lr'?\n"
    assert svt("--version").stdout == f"svtoolkit {svtoolkit.__version__}\n"


def test_what_a_terminal_cannot_show_is_spelled_out(monkeypatch, tmp_path):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["train", f"exp_dir={tmp_path}/Žofie-李", "data.train=data", "--cfg", "job"]) == 0
    shown.flush()
    assert b"/\x8eofie-\\u674e" in shown.buffer.getvalue()
