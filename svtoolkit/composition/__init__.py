"""From conf/ and command-line overrides to a checked configuration object, with errors that say what to type."""

from __future__ import annotations

import functools
import re
from dataclasses import fields, is_dataclass
from typing import Any

from svtoolkit.composition.conf_files import command_dir, conf_dir, config_groups
from svtoolkit.composition.keys import is_text, key_types
from svtoolkit.composition.mistakes import explain, innermost, refuse_unknown, unquoted
from svtoolkit.config import GROUP_SCHEMAS, SCHEMAS
from svtoolkit.errors import UserError

__all__ = [
    "command_dir",
    "compose",
    "conf_dir",
    "config_groups",
    "load",
    "quote",
    "register",
    "to_config",
    "to_yaml",
]


def compose(command: str, overrides: list[str]) -> Any:
    """Compose the configuration of a command.

    Args:
        command: a key of ``svtoolkit.config.SCHEMAS``.
        overrides: Hydra overrides such as ``optim=adamw`` or ``optim.lr=0.1``. The value of a key that takes text is
            taken as it stands, but for null, quotes around it and ``${...}``.

    Returns:
        an OmegaConf node typed by the schema of the command.

    Raises:
        UserError: unknown key, option or group, wrong type, malformed override; names the nearest valid one.
    """
    refuse_unknown(command, overrides)
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    register(command)
    plain = [_as_it_stands(command, override) for override in overrides]
    with initialize_config_dir(str(command_dir(command)), version_base="1.3"):
        try:
            return hydra_compose(command, plain)
        except Exception as error:  # Hydra raises ValueError, AttributeError and its own for a user's mistakes
            reason = explain(command, error, plain, lambda chosen: hydra_compose(command, chosen))
            raise UserError(reason) from error


def load(command: str, overrides: list[str]) -> Any:
    """Compose the configuration of a command and turn it into its dataclass.

    Raises:
        UserError: as ``compose`` and ``to_config``.
    """
    return to_config(command, compose(command, overrides))


def to_config(command: str, config: Any) -> Any:
    """A composed node as the dataclass of its command.

    Raises:
        UserError: a required key was not given, or ``${...}`` leads nowhere.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            listed = " ".join(f"{key}=..." for key in missing)
            raise UserError(f"svt {command}: required and not given: {', '.join(missing)}; add {listed}")
        return OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise UserError(
            f"svt {command}: {error.full_key}: {innermost(error)}; `--key VALUE` takes a value with $ literally"
        ) from error


def register(command: str) -> None:
    """Make the schemas of a command known to Hydra, and the groups that it composes alone."""
    _register_schemas()
    _show_groups(command)


def to_yaml(config: Any) -> str:
    """YAML of a composed node or of a configuration dataclass."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(config if OmegaConf.is_config(config) else OmegaConf.structured(config))


def quote(value: str) -> str:
    """A value as Hydra takes it literally, whatever characters it has (but ``???``, which means `not given`).

    Two grammars read it: that of OmegaConf, for which ``${`` begins an interpolation, inside that of Hydra's overrides.
    """
    literal = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", literal)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * trailing}'"


def _as_it_stands(command: str, override: str) -> str:
    """Quote the value of a text key: Hydra would read 2024_01 as the number 202401 and a,b as two runs."""
    key, _, value = override.partition("=")
    special = value == "null" or unquoted(value) != value or "${" in value
    return f"{key}={quote(value)}" if is_text(key_types(command).get(key, "")) and not special else override


@functools.cache
def _register_schemas() -> None:
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for command, schema in SCHEMAS.items():
        # An option can only be merged onto what all options of its group share, not onto the default option.
        shared = {group: option.__mro__[-2]() for (group, _), option in GROUP_SCHEMAS.items()}
        own = {item.name for item in fields(schema) if is_dataclass(item.default_factory)}
        node = schema(**{group: base for group, base in shared.items() if group in own})
        store.store(name=f"{command}_schema", node=node, provider="svtoolkit")


def _show_groups(command: str) -> None:
    """Register the schemas of the options that a command composes, and take the others out of Hydra's sight.

    Else `svt embed model=x` would choose the option x of the group of that name, as with the files (``command_dir``).
    """
    from hydra.core.config_store import ConfigStore

    store, groups = ConfigStore.instance(), config_groups(command)
    for (group, option), schema in GROUP_SCHEMAS.items():
        if group in groups:
            store.store(group=group, name=f"{option}_schema", node=schema, provider="svtoolkit")
        else:
            store.repo.pop(group, None)
