"""From options, experiments and command-line overrides to a checked configuration object.

What stands on the command line wins: a key over everything, a group over what an experiment says of that group.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from svtoolkit.composition.catalogue import EXPERIMENT, Catalogue, Layer, conf_dir
from svtoolkit.composition.keys import is_list, is_list_of_texts, is_text
from svtoolkit.composition.origin import settings_of
from svtoolkit.composition.override_errors import explain, innermost, refuse_unknown, unquoted
from svtoolkit.config import COMMANDS, REQUIRED
from svtoolkit.config.limits import check_limits
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)

CONFIG_DIR = "config_dir="

KEY = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z0-9_]+)*")

LITERAL = re.compile(r"'([A-Za-z0-9 _./:,=+@%~()\[\]{}-]*)'")
"""Text in quotes that Hydra's grammar takes as it stands."""

LITERALS = re.compile(rf"\[{LITERAL.pattern}(?:,{LITERAL.pattern})*\]")
"""A list of such texts."""


def compose(command: str, overrides: Sequence[str]) -> Any:
    """Compose the configuration of a command.

    Args:
        command: a key of ``svtoolkit.config.COMMANDS``.
        overrides: in Hydra's grammar, such as ``optim=adamw`` or ``optim.lr=0.1``. The value of a key that takes text
            is taken as it stands, but for null, quotes around it and ``${...}``. Where a list is taken, one value
            is a list of it alone. ``config_dir=DIR`` adds the experiments and presets of a folder.

    Returns:
        an OmegaConf node typed by the schema of the command. What an experiment says and the command line has
        replaced is logged.

    Raises:
        UserError: unknown key, option or group, wrong type, malformed override; names the nearest valid one.
    """
    catalogue, overrides = split(command, overrides)
    refuse_unknown(catalogue, overrides)
    pairs = [(key, value) for key, _, value in (override.partition("=") for override in overrides)]
    chosen = {key: _text(value) for key, value in pairs if key in catalogue.options}
    name = chosen.pop(EXPERIMENT, None)
    below = catalogue.experiment(name) if name is not None else Layer()
    origin = {key: below.values.get(key) for key in ("init_from", "front_end")}
    origin |= {key: None if value == "null" else _text(value) for key, value in pairs if key in origin}
    if origin["init_from"] is not None:
        found = settings_of(origin["init_from"], catalogue, set(chosen), front_end=origin["front_end"])
        below, _ = catalogue.put_over(below, found)
    layer, dropped = catalogue.put_over(below, Layer(chosen))
    if dropped:
        groups = " ".join(
            f"{group}={chosen[group]}" for group in dict.fromkeys(key.partition(".")[0] for key in dropped)
        )
        listed = ", ".join(f"{key}={value}" for key, value in dropped.items())
        log.info("%s replaces what experiment=%s says: %s", groups, name, listed)
    node = _build(catalogue, layer)
    types = catalogue.key_types()

    def read(key: str, text: str) -> Any:
        return _as_list(types[key], _parse(key, _as_it_stands(types[key], text)))

    for key, value in pairs:
        if key not in catalogue.options:
            _assign(node, key, value, f"svt {command}", catalogue, read)
    return node


def split(command: str, overrides: Sequence[str]) -> tuple[Catalogue, list[str]]:
    """What there is to choose from, with the folder that ``config_dir=`` names, and the other overrides.

    Raises:
        UserError: as ``Catalogue``, or a command that chooses nothing.
    """
    folders = [_text(word.removeprefix(CONFIG_DIR)) for word in overrides if word.startswith(CONFIG_DIR)]
    catalogue = Catalogue(command)
    if folders and catalogue.classes:
        catalogue = Catalogue(command, folders[-1])
        overrides = [word for word in overrides if not word.startswith(CONFIG_DIR)]
    return catalogue, list(overrides)


def load(command: str, overrides: Sequence[str]) -> Any:
    """Compose the configuration of a command and turn it into its dataclass.

    Raises:
        UserError: as ``compose`` and ``to_config``.
    """
    return to_config(command, compose(command, overrides))


def to_config(command: str, config: Any) -> Any:
    """A composed node as the dataclass of its command.

    Raises:
        UserError: a required key was not given, ``${...}`` leads nowhere, or a number is beyond its limits.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            listed = " ".join(f"{key}=..." for key in missing)
            raise UserError(f"svt {command}: required and not given: {', '.join(missing)}; add {listed}")
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise UserError(
            f"svt {command}: {error.full_key}: {innermost(error)}; `--key VALUE` takes a value with $ literally"
        ) from error
    check_limits(settings)
    return settings


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


def _build(catalogue: Catalogue, layer: Layer) -> Any:
    """The settings of the chosen options, what their presets change, then what the layer says."""
    from omegaconf import OmegaConf

    options = {group: layer.choices.get(group, catalogue.default(group)) for group in catalogue.classes}
    chosen = {group: catalogue.choose(group, option) for group, option in options.items()}
    settings = {group: copy.deepcopy(option.settings) for group, option in chosen.items()}
    node = OmegaConf.structured(COMMANDS[catalogue.command].settings(**settings))
    types = catalogue.key_types()
    for layer_of_values in (*(option.preset for option in chosen.values()), layer):
        for key, value in layer_of_values.values.items():
            _assign(node, key, _as_list(types[key], value), str(layer_of_values.files[key]), catalogue)
    return node


def _assign(
    node: Any,
    key: str,
    value: Any,
    where: str,
    catalogue: Catalogue,
    read: Callable[[str, Any], Any] = lambda key, value: value,
) -> None:
    """Set a key to what ``read`` makes of a value, or say why not."""
    from omegaconf import OmegaConf

    try:
        OmegaConf.update(node, key, read(key, value), merge=True)
    except Exception as error:  # Hydra and OmegaConf raise ValueError, AttributeError and their own for mistakes
        shown = unquoted(value) if isinstance(value, str) else value
        raise UserError(explain(where, node, key, shown, catalogue.key_types()[key], catalogue)) from error


def _parse(key: str, text: str) -> Any:
    """The value of an override in Hydra's grammar.

    Quoted text without anything that this grammar reads is itself, in a list, too: Hydra takes an eighth of a second
    to import.

    Raises:
        ValueError: several values; an error of Hydra's: malformed.
    """
    if KEY.fullmatch(key):
        if literal := LITERAL.fullmatch(text):
            return literal[1]
        if LITERALS.fullmatch(text):
            return LITERAL.findall(text)
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"{key}={text}")
    if override.is_sweep_override():
        raise ValueError("several values")
    return override.value()


def _text(value: str) -> str:
    """A value that is text, without its quotes and what they protect."""
    if unquoted(value) == value:
        return value
    try:
        return str(_parse("text", value))
    except Exception:  # malformed, which is said where it is assigned
        return unquoted(value)


def _as_it_stands(annotation: str, value: str) -> str:
    """Quote the value of a text key: Hydra would read 2024_01 as the number 202401 and a,b as two runs.

    Where a list of texts is taken, a,b is left to be refused: it may be meant as two.
    """
    special = value == "null" or unquoted(value) != value or "${" in value
    is_one = is_text(annotation) or (is_list_of_texts(annotation) and not value.startswith("[") and "," not in value)
    return quote(value) if is_one and not special else value


def _as_list(annotation: str, value: Any) -> Any:
    """One value where a list is taken: a list of it alone."""
    is_one = isinstance(value, str | int | float) and value != REQUIRED and not re.fullmatch(r"\$\{.*\}", str(value))
    return [value] if is_list(annotation) and is_one else value
