"""From conf/ and command-line overrides to a checked configuration object, with errors that say what to type."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from svtoolkit.config import GROUP_SCHEMAS, SCHEMAS
from svtoolkit.errors import UserError


def conf_dir() -> Path:
    """The folder of YAML files: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"{package}: the installation has no conf/ folder; reinstall svtoolkit with pip")


def command_dir(command: str) -> Path:
    """Where <command>.yaml is: conf/ itself, beside the groups it composes, or conf/commands/, where no group is.

    Apart, since Hydra takes `model=x` for the choice of a group wherever a group of that name is in sight.
    """
    plain = conf_dir() / "commands"
    return plain if (plain / f"{command}.yaml").is_file() else conf_dir()


def config_groups(command: str) -> dict[str, list[str]]:
    """Configuration groups that a command composes -> their options, read from the folders of conf/."""
    if command_dir(command) != conf_dir():
        return {}
    return {
        folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
        for folder in sorted(conf_dir().iterdir())
        if folder.is_dir() and folder.name != "commands"
    }


def compose(command: str, overrides: list[str]) -> Any:
    """Compose the configuration of a command.

    Args:
        command: a key of ``svtoolkit.config.SCHEMAS``.
        overrides: Hydra overrides such as ``optim=adamw`` or ``optim.lr=0.1``.

    Returns:
        an OmegaConf node typed by the schema of the command.

    Raises:
        UserError: unknown key, option or group, wrong type, malformed override; names the nearest valid one.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    _refuse_additions(command, overrides)
    _register_schemas()
    with initialize_config_dir(str(command_dir(command)), version_base="1.3"):
        try:
            return hydra_compose(command, overrides)
        except (HydraException, OmegaConfBaseException) as error:
            valid = _valid_keys(command, overrides, hydra_compose)
            raise UserError(_explain(command, error, overrides, valid)) from error


def load(command: str, overrides: list[str]) -> Any:
    """Compose the configuration of a command and turn it into its dataclass.

    Raises:
        UserError: as ``compose``, or a required key was not given.
    """
    from omegaconf import OmegaConf

    config = compose(command, overrides)
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        listed = " ".join(f"{key}=..." for key in missing)
        raise UserError(f"svt {command}: required and not given: {', '.join(missing)}; add {listed}")
    return OmegaConf.to_object(config)


def to_yaml(config: Any) -> str:
    """YAML of a composed node or of a configuration dataclass."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(config if OmegaConf.is_config(config) else OmegaConf.structured(config))


def quote(value: str) -> str:
    """A value as Hydra's override grammar takes it literally, whatever characters it has."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * trailing}'"


def _refuse_additions(command: str, overrides: list[str]) -> None:
    """A key that is added or removed would be read by nobody, so that it cannot be meant."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if override.startswith(("+", "~")) and key not in config_groups(command):
            raise UserError(
                f"svt {command}: found {override!r}, but keys can be neither added nor removed; "
                f"set one with {key}=value (`svt {command} --cfg job` shows the valid keys)"
            )


def _register_schemas() -> None:
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for command, schema in SCHEMAS.items():
        store.store(name=f"{command}_schema", node=schema, provider="svtoolkit")
    for (group, option), schema in GROUP_SCHEMAS.items():
        store.store(group=group, name=f"{option}_schema", node=schema, provider="svtoolkit")


def _valid_keys(command: str, overrides: list[str], hydra_compose: Any) -> list[str]:
    """All keys of the command, with those groups chosen that the overrides choose and that exist."""
    groups = config_groups(command)
    chosen = [
        override
        for override in overrides
        if (parts := override.partition("="))[0] in groups and parts[2] in groups[parts[0]]
    ]
    try:
        config = hydra_compose(command, chosen)
    except Exception:  # the group choice itself is at fault: explain with the defaults
        config = hydra_compose(command, [])
    return _flatten(config)


def _flatten(config: Any, prefix: str = "") -> list[str]:
    from omegaconf import DictConfig, OmegaConf

    keys = []
    for key in config:
        keys.append(f"{prefix}{key}")
        if not OmegaConf.is_missing(config, key) and isinstance(config._get_node(key), DictConfig):
            keys += _flatten(config[key], f"{prefix}{key}.")
    return keys


def _explain(command: str, error: Exception, overrides: list[str], valid: list[str]) -> str:
    """One sentence: what is wrong, and the nearest valid thing."""
    groups = config_groups(command)
    for override in overrides:
        key, equals, value = override.lstrip("+~").partition("=")
        if not equals and not override.startswith("~"):
            return f"svt {command}: found {override!r}, expected key=value; see `svt {command} --help`"
        option = value.strip("'\"")
        if key in groups and key in [*valid, "experiment"] and option not in [*groups[key], "null"]:
            nearest = _nearest(option, groups[key])
            return f"svt {command}: {key} has no option {option!r}; {nearest} (all: {', '.join(groups[key])})"
        if key not in valid and key not in groups:
            return f"svt {command}: there is no key {key!r}; {_nearest(key, valid)}"
    reason = _innermost(error)
    wrong = next((override for override in overrides if _names(reason, override)), None)
    return f"svt {command}: {wrong + ': ' if wrong else ''}{reason}"


def _nearest(word: str, candidates: list[str]) -> str:
    """`did you mean ...?`, comparing last components too, so that lrr finds optim.lr."""
    ranked = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    if not ranked:
        last = word.rpartition(".")[2]
        ends = {candidate.rpartition(".")[2]: candidate for candidate in reversed(candidates)}
        ranked = [ends[end] for end in difflib.get_close_matches(last, list(ends), n=1, cutoff=0.5)]
    return f"did you mean {ranked[0]!r}?" if ranked else "`--cfg job` shows the valid keys"


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().splitlines()[0]


def _names(reason: str, override: str) -> bool:
    value = override.partition("=")[2]
    return bool(value) and repr(value.strip("'\"")) in reason
