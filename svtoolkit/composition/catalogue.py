"""What a command line can choose from: our options, the experiments of conf/, and what a folder of the user's adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from svtoolkit.composition.groups import GROUPS, Option, by_number, default_option, group_classes, is_import_path
from svtoolkit.composition.keys import did_you_mean, key_types, takes_paths
from svtoolkit.config import ModelConfig
from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import check_yaml
from svtoolkit.system.regular_file import is_regular

EXPERIMENT = "experiment"
WITH_EXPERIMENTS = ("train", "crossval")
"""The commands whose settings an experiment can change."""


OF_ONE_COMMAND = {"plan": {"model": {"all": Option(ModelConfig("all"), "every network, from stored figures")}}}
"""Command -> group -> options that it alone has."""


@dataclass
class Layer:
    """What an experiment, a preset or another run says of the settings.

    Attributes:
        choices: group -> option.
        values: dotted key -> value.
        files: dotted key -> where that is said.
    """

    choices: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)


class Chosen(NamedTuple):
    """Settings that an option of a group begins with, and what a preset changes of them."""

    settings: Any
    preset: Layer


def conf_dir() -> Path:
    """The folder of our experiments: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / EXPERIMENT).is_dir():
            return folder
    raise UserError(f"{package}: the installation has no conf/ folder; reinstall svtoolkit with pip")


class Catalogue:
    """Options of the groups of a command, by name.

    Args:
        command: a key of ``svtoolkit.config.COMMANDS``.
        config_dir: folder of the user's with experiment/NAME.yaml and presets GROUP/NAME.yaml.

    Raises:
        UserError: there is no such folder, or a preset there has the name of an option of ours.
    """

    def __init__(self, command: str, config_dir: str | None = None) -> None:
        self.command = command
        self.by_path: set[tuple[str, str]] = set()
        self.classes = group_classes(command)
        folders = [conf_dir()] if command in WITH_EXPERIMENTS else []
        if config_dir is not None:
            if not Path(config_dir).is_dir():
                raise UserError(f"{config_dir}: there is no such folder; expected that of --config-dir")
            folders.append(Path(config_dir))
        self.own = OF_ONE_COMMAND.get(command, {})
        groups = [*self.classes, *([EXPERIMENT] if command in WITH_EXPERIMENTS else [])]
        self.files = {group: dict(_yaml_files(folders, group)) for group in groups}
        self.options = {
            group: sorted({*GROUPS.get(group, {}), *self.files[group], *self.own.get(group, {})}, key=by_number)
            for group in sorted(groups)
        }

    def key_types(self) -> dict[str, str]:
        """Every dotted key that can be set -> its annotation, those of options by import path among them."""
        return key_types(self.command, self.by_path)

    def has_option(self, group: str, option: str) -> bool:
        """Whether a name is listed, or the import path of something that can be chosen.

        Raises:
            UserError: nothing, or nothing of that kind, is at the import path.
        """
        if option in self.options[group]:
            return True
        if not (takes_paths(group) and is_import_path(option)):
            return False
        self.choose(group, option)
        self.by_path.add((group, option))
        return True

    def default(self, group: str) -> str:
        return default_option(group, self.classes[group])

    def choose(self, group: str, option: str, *, begun: tuple[Path, ...] = ()) -> Chosen:
        """What an option stands for.

        Raises:
            UserError: its file is no preset of that group.
        """
        if option in self.own.get(group, {}):
            return Chosen(self.own[group][option].settings, Layer())
        if option not in self.files[group]:
            return Chosen(GROUPS[group][option].settings, Layer())
        file = self.files[group][option]
        bases, choices, values = self._read(file, f"{group}.")
        if choices or len(bases) > 1 or file in begun:
            raise UserError(f"{file}: expected `defaults: [OPTION]` with one other option of {group}, or none")
        base = bases[0] if bases else self.default(group)
        self._check_option(file, group, base)
        below = self.choose(group, base, begun=(*begun, file))
        preset = Layer({}, below.preset.values | values, below.preset.files | dict.fromkeys(values, file))
        return Chosen(below.settings, preset)

    def derives(self, group: str, option: str, other: str) -> bool:
        """Whether an option is another one with further keys, as sgd_8bit is sgd, or that option itself."""
        if option == other:
            return True
        mine, theirs = self.choose(group, option), self.choose(group, other)
        own, base = type(mine.settings), type(theirs.settings)
        return own is not base and issubclass(own, base) and not mine.preset.values

    def experiment(self, name: str, *, begun: tuple[Path, ...] = ()) -> Layer:
        """What an experiment says: a name, or the path of a YAML file.

        Raises:
            UserError: the file is not there or says what cannot be; names it.
        """
        file = self.files[EXPERIMENT].get(name) or Path(name)
        if not is_regular(file):
            raise UserError(f"{file}: there is no such file; expected an experiment, as those of {conf_dir()}")
        if file in begun:
            raise UserError(f"{file}: is based on itself; correct its defaults")
        bases, choices, values = self._read(file, "")
        layer = Layer()
        for base in bases:
            beside = file.with_name(f"{base}.yaml")
            if base not in self.options[EXPERIMENT] and not beside.is_file():
                hint = did_you_mean(base, self.options[EXPERIMENT]) or f"all: {', '.join(self.options[EXPERIMENT])}"
                raise UserError(f"{file}: there is no experiment {base!r} to be based on; {hint}")
            path = str(beside) if beside.is_file() else base
            layer, _ = self.put_over(layer, self.experiment(path, begun=(*begun, file)))
        return self.put_over(layer, Layer(choices, values, dict.fromkeys(values, file)))[0]

    def put_over(self, below: Layer, above: Layer) -> tuple[Layer, dict[str, Any]]:
        """One layer on top of another: a choice replaces all that is said below of its group.

        An option that derives from the one below keeps what is said there of the keys that both have.

        Returns:
            both as one, and the values from below that were dropped.
        """
        replaced = {
            group
            for group, option in above.choices.items()
            if not self.derives(group, option, below.choices.get(group, self.default(group)))
        }
        dropped = {key: value for key, value in below.values.items() if key.partition(".")[0] in replaced}
        kept = {key: value for key, value in below.values.items() if key not in dropped}
        layer = Layer(below.choices | above.choices, kept | above.values, below.files | above.files)
        return layer, {key: value for key, value in dropped.items() if key not in above.values}

    def _check_option(self, file: Path, group: str, option: str) -> None:
        if not self.has_option(group, option):
            hint = did_you_mean(option, self.options[group]) or f"all: {', '.join(self.options[group])}"
            raise UserError(f"{file}: {group} has no option {option!r}; {hint}")

    def _read(self, file: Path, prefix: str) -> tuple[list[str], dict[str, str], dict[str, Any]]:
        """Bases, choices and values of a file in Hydra's form; keys in full, that is with the prefix of the group."""
        content = _load(file)
        bases, choices = self._read_defaults(file, content.pop("defaults", None) or [])
        for group, option in choices.items():
            self._check_option(file, group, option)
        types = self.key_types()
        values = dict(_flatten(content, prefix, self.classes))
        for key in values:
            if key not in types:
                hint = did_you_mean(key, [name for name in types if name.startswith(prefix)])
                raise UserError(f"{file}: there is no key {key!r}; {hint or 'svt train --help lists the keys'}")
        return bases, choices, values

    def _read_defaults(self, file: Path, defaults: Any) -> tuple[list[str], dict[str, str]]:
        bases: list[str] = []
        choices: dict[str, str] = {}
        items = defaults if isinstance(defaults, list) else [defaults]
        for number, item in enumerate(items, start=1):
            if item == "_self_" and number == len(items):
                continue
            group, option = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else ("", item)
            name = str(group).removeprefix("override ").removeprefix("/")
            if isinstance(item, str) and item != "_self_":
                bases.append(item)
            elif name in self.classes and isinstance(option, str):
                choices[name] = option
            else:
                raise UserError(
                    f"{file}: found {item!r} in defaults, expected the name of what it is based on or "
                    f"`override /GROUP: OPTION` (groups: {', '.join(self.classes)})"
                )
        return bases, choices


def _yaml_files(folders: list[Path], group: str) -> Iterator[tuple[str, Path]]:
    seen: dict[str, Path] = {}
    for folder in folders:
        for file in sorted((folder / group).glob("*.yaml")):
            if file.stem in seen or file.stem in GROUPS.get(group, {}):
                raise UserError(f"{file}: svtoolkit has {group}={file.stem} of its own; rename the file")
            seen[file.stem] = file
            yield file.stem, file


def _load(file: Path) -> dict[str, Any]:
    """A YAML mapping as OmegaConf reads it, which knows 1e-4 for a number and refuses a key that stands twice."""
    from omegaconf import OmegaConf

    try:
        check_yaml(file)
        content = OmegaConf.to_container(OmegaConf.load(file))
    except UserError:
        raise
    except Exception as error:  # of YAML, of OmegaConf and of the file system
        raise UserError(f"{file}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: found a list, expected keys and values")
    return {str(key): value for key, value in content.items()}


def _flatten(content: dict[str, Any], prefix: str, groups: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if not prefix and key in groups and isinstance(value, dict):
            for name, inner in value.items():
                yield f"{key}.{name}", inner
        else:
            yield f"{prefix}{key}", value
