"""svt train: a speaker embedding network, end to end; with --dry-run, what that would take."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from svtoolkit import composition
from svtoolkit.config import TrainConfig
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import RUN_RECORD, append_command
from svtoolkit.system.output import log_to_stdout, say_next
from svtoolkit.system.shell_words import join_words
from svtoolkit.training.launch import launch

log = logging.getLogger(__name__)

# What Hydra takes for a text without quotes; the line is kept, and shown by the report.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS_OF_HYDRA = {"null", "true", "false", "inf", "nan"}


def dry_run(config: TrainConfig) -> int:
    """Say what the run would take."""
    from svtoolkit.training.dry_run import dry_run as forecast

    forecast(config)
    return 0


def run(config: TrainConfig, command_line: str) -> int:
    """Train; the exit status is 128 + signal where a signal stopped the run."""
    stopped_by = launch(config)
    append_command(Path(config.exp_dir) / RUN_RECORD, command_line)
    if stopped_by is None:
        log.info("finished: %s", config.exp_dir)
        say_next("svt", "average", config.exp_dir)
        return 0
    log.info("stopped by signal %d, state saved; the same command resumes from here", stopped_by)
    return 128 + stopped_by


def train(overrides: Sequence[str] | Mapping[str, object] = (), /, **keys: object) -> Path:
    """Train as `svt train` does, with the same settings, output and files.

    Args:
        overrides: words of the command line, ``["experiment=mini", "data.train=data/train"]``, or the same as a
            mapping, ``{"experiment": "mini", "data": {"train": "data/train"}, "trainer.epochs": 5}``, whose texts are
            taken literally; None is null.
        keys: further settings, as in a mapping: ``exp_dir="exp/mini"``.

    Returns:
        the folder of the run, exp_dir.

    Raises:
        UserError: what the command would have said after `error:`.
        KeyboardInterrupt: stopped by Ctrl-C, the state saved; the same call resumes from there.
        SystemExit: stopped by another signal, the state saved; its code is 128 + signal.
    """
    words = _words(overrides) + _words(keys)
    with log_to_stdout():
        config: TrainConfig = composition.load("train", words)
        status = run(config, join_words(["svt", "train", *words]))
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status:
        raise SystemExit(status)
    return Path(config.exp_dir)


def _words(overrides: Sequence[str] | Mapping[str, object]) -> list[str]:
    """Overrides in Hydra's grammar."""
    if isinstance(overrides, str):
        raise UserError(f"found the text {overrides!r}, expected a list of words or a mapping; write [{overrides!r}]")
    if not isinstance(overrides, Mapping):
        return list(overrides)
    words = []
    for key, value in overrides.items():
        if isinstance(value, Mapping) and "." not in key:  # of a group
            words += _words({f"{key}.{name}": each for name, each in value.items()})
        else:
            words.append(f"{key}={_literal(value)}")
    return words


def _literal(value: object) -> str:
    """A value as an override writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | Path):
        text = str(value)
        return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_HYDRA else composition.quote(text)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_literal, value)) + "]"
    return str(value)
