"""`svt <command> [key=value ...]`: finds the command's module and hands it the checked configuration.

Nothing heavy is imported before the command is known to run, so that help and errors of usage are instant.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from svtoolkit import __version__
from svtoolkit.errors import UserError


@dataclass(frozen=True)
class Command:
    """One line of the table of commands: what it does and which keys may be given by position."""

    summary: str
    positional: tuple[str, ...] = ()
    example: str = ""


COMMANDS: dict[str, Command] = {
    "prepare": Command(
        "make a Kaldi data directory of a corpus", (), "corpus=folders source=[my_speech] out=data/mine"
    ),
    "validate": Command("check a data directory, repair a copy", ("data",), "data/train --against [data/eval]"),
    "train": Command("train a speaker embedding network", (), "model=resnet34 data.train=data/train exp_dir=exp/r34"),
    "average": Command("average checkpoints into a released model", ("exp_dir",), "exp/r34 num=10"),
    "embed": Command(
        "extract embeddings of whole utterances", (), "model=exp/r34/model data=data/eval out=exp/r34/eval"
    ),
    "score": Command(
        "score trials: cosine, S-Norm, AS-Norm", (), "trials=t embeddings=e.scp out=s normalisation=as-norm"
    ),
    "evaluate": Command("EER, minDCF, Cllr and intervals of a score file", (), "scores=s trials=t"),
    "report": Command("result.json and a page that opens offline", (), "results=[a.json,b.json] out=exp/r34/report"),
    "verify": Command("do two recordings share a speaker?", ("model", "enrol", "test"), "exp/r34/model a.wav b.wav"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 (the user can put it right) or 128 + signal."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if words else 1
    if words[0] == "--version":
        print(f"svtoolkit {__version__}")
        return 0
    try:
        return _run(words[0], words[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.4)
        hint = f"did you mean `svt {near[0]}`?" if near else "`svt --help` lists the commands"
        raise UserError(f"svt has no command {name!r}; {hint}")
    if "-h" in words or "--help" in words:
        print(_command_help(name))
        return 0
    overrides, show = parse_words(name, words)
    from svtoolkit import composition

    if show:
        print(composition.to_yaml(composition.compose(name, overrides)), end="")
        return 0
    config = composition.load(name, overrides)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    module = importlib.import_module(f"svtoolkit.commands.{name}")
    return int(module.run(config) or 0)


def parse_words(name: str, words: Sequence[str]) -> tuple[list[str], bool]:
    """Words of the command line -> (Hydra overrides, whether only the configuration is to be shown).

    `--key value` and `--key=value` mean key=value taken literally; words without `=` fill the positional keys.

    Raises:
        UserError: an option without its value, more words than positions.
    """
    from svtoolkit.composition import quote

    overrides: list[str] = []
    positions = list(COMMANDS[name].positional)
    rest = list(words)
    show = False
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            if not equals:
                if not rest or rest[0].startswith("--"):
                    raise UserError(f"svt {name}: {word} needs a value, as in `{word} VALUE`")
                value = rest.pop(0)
            if key == "cfg":
                if value != "job":
                    raise UserError(f"svt {name}: found --cfg {value}, expected --cfg job")
                show = True
                continue
            literal = value if value.startswith("[") or value == "null" else quote(value)
            overrides.append(f"{key.replace('-', '_')}={literal}")
        elif "=" in word or word.startswith("~"):
            overrides.append(word)
        elif positions:
            overrides.append(f"{positions.pop(0)}={quote(word)}")
        else:
            raise UserError(f"svt {name}: found {word!r}, expected key=value; see `svt {name} --help`")
    return overrides, show


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"svtoolkit {__version__}: speaker-verification training that fits the cards people own",
            "",
            "usage: svt <command> [key=value ...]",
            "",
            *lines,
            "",
            "`svt <command> --help` lists the keys of a command, `svt <command> --cfg job` shows them composed.",
        ]
    )


def _command_help(name: str) -> str:
    from svtoolkit.composition import config_groups
    from svtoolkit.config import SCHEMAS

    command = COMMANDS[name]
    positional = "".join(f" {key.upper()}" for key in command.positional)
    schema = SCHEMAS[name]
    groups = config_groups(name)
    lines = [f"svt {name}: {command.summary}", "", f"usage: svt {name}{positional} [key=value ...]"]
    lines += [f"example: svt {name} {command.example}", "", "keys:", *_describe(schema)]
    if groups:
        lines += ["", "groups (choose with group=option):"]
        lines += [f"  {group}: {', '.join(options)}" for group, options in groups.items()]
    lines += [
        "",
        f"`svt {name} --cfg job` shows the composed configuration; `--key value` is key=value taken literally.",
    ]
    return "\n".join(lines)


def _describe(schema: Any, prefix: str = "") -> list[str]:
    """One line a key: its name and default; nested nodes indented by their dotted path."""
    lines = []
    for item in fields(schema):
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if hasattr(default, "__dataclass_fields__"):
            lines += _describe(type(default), f"{prefix}{item.name}.")
        else:
            shown = "(required)" if default == "???" else f"= {'null' if default is None else default}"
            lines.append(f"  {prefix}{item.name} {shown}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
