"""The network and the features of the model that ``init_from`` names, which a run that begins with it has to have."""

from __future__ import annotations

import logging
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from svtoolkit.checkpoints.hub import is_address
from svtoolkit.composition.catalogue import Catalogue, Layer
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import RELEASED_FRONT_ENDS
from svtoolkit.models.registry import FINE_TUNED, check_trainable
from svtoolkit.system.plain_data import MalformedError, read_yaml
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

DESCRIPTIONS = ("config.yaml", "model.yaml")
"""Of a run, of a released model."""


def settings_of(init_from: str, catalogue: Catalogue, given: set[str], *, front_end: str | None = None) -> Layer:
    """What a run or a released model says of the groups model and features; nothing where there is none yet.

    Args:
        init_from: exp_dir of a run, a released model of any toolkit, or its address on the hub.
        given: groups that the command line chooses, for which the model there does not count.
        front_end: what the features are, of a release that does not say so.

    Raises:
        UserError: its description cannot be read or fetched, or names a network that there is not.
    """
    if is_address(init_from):
        from svtoolkit.checkpoints.releases import folder_of  # torch, for such a release alone

        init_from = str(folder_of(init_from))
    file = next((path for path in (Path(init_from) / name for name in DESCRIPTIONS) if is_regular(path)), None)
    content = {} if file is None else _read(file)
    if Path(init_from).exists() and not isinstance(content.get("model"), dict):
        file, content = _of_another_toolkit(init_from, front_end) or (file, content)
    if file is None:
        return Layer()
    if isinstance(content.get("model"), dict):
        content["model"] |= _ranks_of_run(Path(init_from))
    layer = Layer()
    for group in (group for group in ("model", "features") if group not in given):
        found = content.get(group)
        if not isinstance(found, dict):
            raise UserError(
                f"{file}: says nothing of the {group}, so it is no description of a model; correct init_from"
            )
        option = found.get("name") if group == "model" else found.get("backend")
        if group == "model":
            check_trainable(str(option), file)
        is_released = option in (FINE_TUNED if group == "model" else RELEASED_FRONT_ENDS)
        if group == "features" and not is_released and option not in catalogue.options[group]:
            option = catalogue.default(group)
        if not is_released and option not in catalogue.options[group]:
            raise UserError(f"{file}: there is no {group} {option!r} here; correct init_from")
        layer.choices[group] = str(option)
        known = {item.name for item in fields(catalogue.choose(group, str(option)).settings)}
        layer.values |= {f"{group}.{key}": value for key, value in found.items() if key in known}
    layer.files = dict.fromkeys(layer.values, file)
    if layer.choices:
        log.info("%s as in %s: model=%s", " and ".join(layer.choices), file, content["model"].get("name"))
    return layer


def _ranks_of_run(exp_dir: Path) -> dict[str, Any]:
    """The ranks that a run in two stages ended with, which its configuration does not know; nothing: it has none."""
    released = exp_dir / "model" / DESCRIPTIONS[-1]
    model = _read(released).get("model") if is_regular(released) else None
    return {"ranks": model["ranks"]} if isinstance(model, dict) and "ranks" in model else {}


def _of_another_toolkit(init_from: str, front_end: str | None) -> tuple[Path, dict[str, Any]] | None:
    """The file of weights of a release of another toolkit, and its description; None: it is none."""
    from svtoolkit.checkpoints.releases import describe, find_release  # torch, for such a release alone

    release = find_release(init_from)
    if release is None or release.is_ours:
        return None
    return release.weights, asdict(describe(release, front_end=front_end))


def _read(file: Path) -> dict[str, Any]:
    try:
        content = read_yaml(file)
    except MalformedError as error:
        raise UserError(f"{file}: cannot be read as YAML ({error}); correct init_from") from error
    return content if isinstance(content, dict) else {}
