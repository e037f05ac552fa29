"""What may follow the words of a command line: commands, keys, choices; from the tables that --help shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from svtoolkit.composition.catalogue import Catalogue
from svtoolkit.composition.keys import key_types
from svtoolkit.composition.shipped import shipped_names
from svtoolkit.config import COMMANDS
from svtoolkit.config.command_table import FLAGS_OF_TRAIN

SHELLS = ("bash", "zsh", "fish")

COMMON = ("--help", "--cfg")

FIXED = {
    ("prepare", "part"): ["all", "dev", "test"],
    ("train", "resume"): ["auto", "never"],
    ("crossval", "resume"): ["auto", "never"],
    ("backend", "kind"): ["lda", "wccn", "plda"],
    ("score", "normalisation"): ["none", "s-norm", "as-norm"],
    ("completion", "shell"): list(SHELLS),
}
"""Choices of keys that are no groups."""


@dataclass
class Words:
    """What may follow a command.

    Attributes:
        keys: that take a value, as ``optim.lr``; groups among them.
        flags: words that begin with dashes.
        choices: key -> its values, where they can be listed.
        positions: values of the first word that is no key; none: a file.
    """

    keys: list[str]
    flags: list[str]
    choices: dict[str, list[str]] = field(default_factory=dict)
    positions: list[str] = field(default_factory=list)


def words_of(command: str) -> Words:
    """Everything that may follow a command."""
    types = key_types(command)
    options = Catalogue(command).options
    choices = {key: ["true", "false"] for key, annotation in types.items() if annotation == "bool"}
    choices |= {key: values for (name, key), values in FIXED.items() if name == command}
    choices |= {key: _devices(command) for key in types if key.rpartition(".")[2] == "device" and "augment" not in key}
    choices |= {key: ["fp32", "bf16", "fp16"] for key in types if key.rpartition(".")[2] == "precision"}
    choices |= options
    if command == "prepare":
        from svtoolkit.corpora.registry import CORPORA

        choices["corpus"] = list(CORPORA)
    flags = [*COMMON, *(["--config-dir"] if options else []), *(FLAGS_OF_TRAIN if command == "train" else [])]
    found = Words(sorted({*types, *options}), flags, choices)
    if command == "recipe":
        found.positions = ["mini", "small", "voxceleb"]
    elif command == "copy":
        found.positions = shipped_names()
    elif COMMANDS[command].positional and COMMANDS[command].positional[0] in choices:
        found.positions = choices[COMMANDS[command].positional[0]]
    elif command == "models":
        found.positions = Catalogue("train").options["model"]
    return found


def _devices(command: str) -> list[str]:
    return ["auto", "cpu", "cuda", *(["mps"] if command != "memory" else [])]
