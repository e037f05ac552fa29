"""What is wrong with the overrides of a command line, in one sentence that says what to type instead."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from svtoolkit.composition.catalogue import EXPERIMENT, WITH_EXPERIMENTS, Catalogue
from svtoolkit.composition.groups import TOLD_BY, from_a_package
from svtoolkit.composition.keys import did_you_mean, expected, is_list_of_texts, is_text, options_with
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import BACKENDS
from svtoolkit.models.registry import FINE_TUNED, RELEASED_NETWORKS


def refuse_unknown(catalogue: Catalogue, overrides: Sequence[str]) -> None:
    """Refuse what can be seen without composing: another form than key=value, keys and options there are not.

    Raises:
        UserError: names the override and the nearest valid thing.
    """
    command, groups = catalogue.command, catalogue.options
    for override in overrides:  # first, since they say which keys there are
        group, _, option = override.partition("=")
        if group in catalogue.classes:
            catalogue.has_option(group, unquoted(option))
    keys = catalogue.key_types()
    for override in overrides:
        key, equals, value = override.lstrip("+~").partition("=")
        if override.startswith(("+", "~")):
            raise UserError(
                f"svt {command}: found {override!r}, but keys and groups can be neither added nor removed; "
                f"set one with {key or 'key'}={value or 'value'} (`svt {command} --cfg job` shows what there is)"
            )
        if not equals or not key:
            raise UserError(f"svt {command}: found {override!r}, expected key=value; see `svt {command} --help`")
        if key not in groups and key not in keys:
            hint = did_you_mean(key, [*keys, *groups]) or f"`svt {command} --help` lists the keys"
            raise UserError(f"svt {command}: there is no key {key!r}; {hint}")
        if value in ("", "''", '""'):
            wanted = f"one of {', '.join(groups[key])}" if key in groups else expected(keys[key])
            raise UserError(
                f"svt {command}: {key}= has no value, expected {wanted}; "
                "if it came from a shell variable, that is empty"
            )
        is_file = key == EXPERIMENT and unquoted(value).endswith((".yaml", ".yml"))
        if key in groups and not is_file:
            _refuse_unknown_option(catalogue, key, unquoted(value))


def _refuse_unknown_option(catalogue: Catalogue, group: str, option: str) -> None:
    command, options = catalogue.command, catalogue.options[group]
    if group == "model" and option in RELEASED_NETWORKS:
        how = "cannot be trained; `svt models` lists the networks that can"
        if option in FINE_TUNED and command in WITH_EXPERIMENTS:
            how = "is not trained without one: leave model= out, and name the release with init_from="
        elif option in FINE_TUNED:
            how = "is not built without one: `svt train --dry-run init_from=RELEASE` says what its training needs"
        what = f"{RELEASED_NETWORKS[option].help}, which comes as a released model"
        raise UserError(f"svt {command}: model={option} is {what} and {how}")
    if option not in options and (group, option) not in catalogue.by_path:
        near = did_you_mean(option, options)
        hint = f"{near} (all: {', '.join(options)})" if near else f"expected one of {', '.join(options)}, or nothing"
        raise UserError(f"svt {command}: {group} has no option {option!r}; {hint}{from_a_package(group, option)}")


def explain(where: str, node: Any, key: str, value: Any, annotation: str, catalogue: Catalogue) -> str:
    """Why a key of a composed node could not be set to a value.

    Args:
        where: that the value comes from: `svt train`, or a file.
        annotation: of the key in the schema.
    """
    group, _, name = key.partition(".")
    if group in catalogue.classes and name not in node[group]:
        option = node[group][TOLD_BY.get(group, "name")]
        if group == "features" and option in BACKENDS:
            option = "fbank80"
        return (
            f"{where}: {group}={option} has no key {key!r}, which belongs to "
            f"{', '.join(options_with(key))}; its keys: {', '.join(node[group])}"
        )
    literally = ""
    if is_text(annotation):
        literally = f"; `--{key} VALUE` takes any text literally"
    elif is_list_of_texts(annotation) and isinstance(value, str) and "," in value:
        literally = f"; `--{key} VALUE` takes one text literally, commas included"
    return f"{where}: {key} is {value!r}, expected {expected(annotation)}{literally}"


def unquoted(value: str) -> str:
    """A value without the quotes around it."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def innermost(error: BaseException) -> str:
    """The error that all others were raised from, on one line and without OmegaConf's notes on types."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines()]
    told = itertools.takewhile(lambda line: not line.startswith(("full_key:", "object_type=")), lines)
    return " ".join(filter(None, told)) or type(error).__name__
