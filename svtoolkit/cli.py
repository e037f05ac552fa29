"""`svt <command> [key=value ...]`: finds the command's module and hands it the checked configuration.

Nothing heavy is imported before the command is known to run, so that help and errors of usage are instant.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from svtoolkit import __version__
from svtoolkit.config import COMMANDS, REQUIRED
from svtoolkit.config.command_table import DRY_RUN, FLAGS_OF_TRAIN, MULTIRUN
from svtoolkit.config.plain_words import plain_settings
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.system.output import log_to_stdout
from svtoolkit.system.shell_words import join_words
from svtoolkit.system.signals import leave_on_interrupt

if TYPE_CHECKING:
    from svtoolkit.composition.keys import Entry


SYSTEM_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT,
    errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG, errno.EIO,
}  # fmt: skip
"""What a user can put right when the system refuses a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    0, 1 (the user can put it right) or 128 + signal; of `svt verify` also 2 (different speakers) and 3 (no threshold).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A terminal of Windows may have no form of a character in a speaker's name.
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.platform == "darwin":  # before torch is imported: what its mps lacks is computed on the CPU
        os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Who read the output has left, as `svt --help | head -1` does: what is still buffered may go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13  # SIGPIPE, which has no name on Windows
    except OSError as error:
        if error.errno not in SYSTEM_REFUSALS or error.filename is None:
            raise
        remedy = "check the path, its permissions and the free disk, then run the command again"
        print(f"error: {hide_credentials(str(error.filename))}: {error.strerror}; {remedy}", file=sys.stderr)
        return 1


def _run(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0 if words else 1
    if words[0] == "--version":
        print(f"svtoolkit {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        import difflib

        near = [] if name.startswith("-") else difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `svt {near[0]}`?" if near else "`svt --help` lists the commands"
        raise UserError(f"svt has no command {name!r}; {hint}")
    if "-h" in rest or "--help" in rest:
        print(_command_help(name, [word for word in rest if word not in ("-h", "--help")]))
        return 0
    if name == "completion" and len(rest) == 1 and rest[0].isalpha():
        # A shell evaluates it whenever it starts: without the second that composing a configuration takes.
        from svtoolkit.composition.shell_scripts import script_for

        print(script_for(rest[0]), end="")
        return 0
    return _run_command(name, rest)


def _run_command(name: str, words: list[str]) -> int:
    flags = [flag for flag in FLAGS_OF_TRAIN if flag in words]
    if flags and name != "train":
        raise UserError(f"svt {name}: {flags[0]} is for `svt train`; run `svt {name}` without it, once for each")
    words = [word for word in words if word not in flags]
    config = plain_settings(name, words)
    overrides, show = ([], False) if config is not None else parse_words(name, words)
    if MULTIRUN in flags:
        if DRY_RUN in flags:
            raise UserError(f"svt {name}: {DRY_RUN} is of one run; leave out {MULTIRUN}")
        with leave_on_interrupt():
            from svtoolkit.commands.multirun import run_jobs

        return run_jobs(overrides)
    if config is None:
        with leave_on_interrupt():
            from svtoolkit import composition

    if show:
        with log_to_stdout("# %(message)s"):
            print(hide_credentials(composition.to_yaml(composition.compose(name, overrides))), end="")
        return 0
    with log_to_stdout():
        config = composition.load(name, overrides) if config is None else config
        try:
            with leave_on_interrupt():
                module = importlib.import_module(f"svtoolkit.commands.{name.replace('-', '_')}")
            if DRY_RUN in flags:
                return int(module.dry_run(config))
            return int(module.run(config, hide_credentials(join_words(["svt", name, *words]))) or 0)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise UserError(
                f"svt {name} needs torch here, which is not installed; `pip install torch`, or give `svt verify` or "
                "`svt embed` a file of `svt export`"
            ) from error


def parse_words(name: str, words: Sequence[str]) -> tuple[list[str], bool]:
    """Words of the command line -> (Hydra overrides, whether only the configuration is to be shown).

    `--key value` and `--key=value` mean key=value taken literally, where key takes a list a list of this value alone
    unless it begins with [; null means none. Words without `=` fill the positional keys, where one that takes a list
    takes all that are left but one for each position after it, as `cp` does.

    Raises:
        UserError: an option without its value, an unknown short option, more words than positions.
    """
    from svtoolkit.composition import quote
    from svtoolkit.composition.keys import is_list, key_types, options_by_path

    types = key_types(name, options_by_path(words))
    overrides: list[str] = []
    positions = list(COMMANDS[name].positional)
    listed: list[str] = []
    rest = list(words)
    show = False
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and word != "--":
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
            key = key.replace("-", "_")
            if is_list(types.get(key, "")):
                literal = value if value.startswith("[") or not value else f"[{quote(value)}]"
            else:
                literal = value if value == "null" else quote(value)
            overrides.append(f"{key}={literal}")
        elif "=" in word or word.startswith("~"):
            overrides.append(word)
        elif positions and not word.startswith("-"):
            if is_list(types[positions[0]]):
                listed.append(word)
            else:
                overrides.append(f"{positions.pop(0)}={quote(word)}")
        else:
            raise UserError(_unexpected(name, word))
    given = {override.partition("=")[0] for override in overrides}
    left = [key for key in positions if key not in given] or positions
    while listed:
        if not left:
            raise UserError(_unexpected(name, listed[0]))
        key = left.pop(0)
        if is_list(types[key]):
            taken = max(1, len(listed) - len(left))
            overrides.append(f"{key}=[{','.join(map(quote, listed[:taken]))}]")
            del listed[:taken]
        else:
            overrides.append(f"{key}={quote(listed.pop(0))}")
    return overrides, show


def _unexpected(name: str, word: str) -> str:
    return f"svt {name}: found {word!r}, expected key=value; see `svt {name} --help`"


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"svtoolkit {__version__}: speaker-verification training that fits the GPUs people own",
            "",
            "usage: svt <command> [key=value ...]",
            "",
            *lines,
            "",
            "`svt <command> --help` lists the keys of a command, `svt <command> --cfg job` shows them composed.",
        ]
    )


def _command_help(name: str, words: Sequence[str]) -> str:
    from svtoolkit.composition import split
    from svtoolkit.composition.keys import Entry, described_keys, is_list, key_types

    command = COMMANDS[name]
    types = key_types(name)
    heads = [f"[{key.upper()} ...]" if is_list(types[key]) else key.upper() for key in command.positional]
    positional = "".join(f" {head}" for head in heads)
    catalogue, _ = split(name, parse_words(name, words)[0])
    lines = [f"svt {name}: {command.summary}", "", f"usage: svt {name}{positional} [key=value ...]"]
    lines += [f"example: svt {name} {command.example}", "", "keys:", *_table(described_keys(name))]
    groups = [
        Entry(group, catalogue.default(group) if group in catalogue.classes else "null", ", ".join(options))
        for group, options in catalogue.options.items()
    ]
    if name == "train":
        lines += ["", "flags:", *(f"  {flag:<12}{text}" for flag, text in FLAGS_OF_TRAIN.items())]
    if groups:
        lines += ["", "groups (choose with group=option):", *_table(groups)]
    lines += [
        "",
        f"`svt {name} --cfg job` shows the composed configuration; `--key value` is key=value taken literally.",
    ]
    if groups:
        lines.append("`--config-dir DIR` adds the options of a folder of your own: DIR/GROUP/NAME.yaml.")
    return "\n".join(lines)


def _table(entries: Sequence[Entry]) -> list[str]:
    """`name = default   explanation`, the explanations in one column, wrapped to the width of the terminal."""
    import textwrap

    heads = [f"  {name} (required)" if default == REQUIRED else f"  {name} = {default}" for name, default, _ in entries]
    column = max(map(len, heads)) + 2
    width = max(shutil.get_terminal_size((120, 24)).columns, column + 40)
    lines: list[str] = []
    for head, (_, _, text) in zip(heads, entries, strict=True):
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=f"{head:<{column}}",
            subsequent_indent=" " * column,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [head]
    return lines


if __name__ == "__main__":
    sys.exit(main())
