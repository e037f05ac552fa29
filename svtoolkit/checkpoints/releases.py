"""A released model by one word: what lies at a path or on the hub, of any toolkit; nothing in it is executed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from svtoolkit.checkpoints import hub
from svtoolkit.checkpoints.foreign_file import every_file_once, read_weights
from svtoolkit.checkpoints.kinds import KINDS, Kind, State
from svtoolkit.checkpoints.layout import check_fit, list_names
from svtoolkit.checkpoints.released import DESCRIPTION, ModelDescription, read_description, read_released
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.system.regular_file import is_regular


class Release(NamedTuple):
    """What was found at a path.

    Attributes:
        kind: row of the table.
        weights: file of its weights.
    """

    kind: Kind
    weights: Path

    @property
    def is_ours(self) -> bool:
        """Whether a model.yaml describes it."""
        return self.kind.read is None

    @property
    def source(self) -> Path:
        """The file that messages about its content name."""
        return self.weights.with_name(DESCRIPTION) if self.is_ours else self.weights

    @property
    def origin(self) -> str | None:
        """Repository and commit, as hf://org/name@commit, of what lies in the cache of the hub; None: it does not."""
        return hub.origin_of(self.weights)


def find_release(path: str | Path) -> Release | None:
    """What kind of release lies at a path, or at an address of the hub, which is fetched; None: none that is known.

    Raises:
        UserError: releases of several kinds, or one that lacks a file; a repository that cannot be had, or holds none.
    """
    if hub.is_address(path):
        return _find_on_hub(hub.parse_address(path))
    with every_file_once():
        found = _found(Path(path), alone=False) or _found(Path(path), alone=True)
    if len(found) > 1:
        files = " and ".join(f"{release.weights.name} of {release.kind.name}" for release in found)
        raise UserError(f"{path}: holds releases of several kinds, {files}; put one of them into a folder of its own")
    return found[0] if found else None


def _found(path: Path, *, alone: bool) -> list[Release]:
    return [Release(kind, file) for kind in KINDS if kind.alone == alone and (file := kind.find(path)) is not None]


def _find_on_hub(address: hub.Address) -> Release:
    """The first kind of the table whose files a repository holds; others beside them stay where they are."""
    for listing in hub.listings(address):
        for kind in KINDS:
            sets = next(filter(None, (hub.complete(words, listing.files) for words in kind.on_hub)), [])
            if len(sets) > 1:
                weights = list_names([files[-1] for files in sets])
                raise UserError(
                    f"{address}: holds several models, {weights}; download one of them into a folder of its own, and "
                    "give that"
                )
            if sets and (found := kind.find(hub.fetch(listing, sets[0]))) is not None:
                return Release(kind, found)
    found_there = list_names(sorted(listing.files)) if listing.files else "nothing"
    where = "the cache has of it" if listing.cached else "it holds"
    raise UserError(
        f"{address}: {where} {found_there}, and no whole release of {', '.join(kind.name for kind in KINDS)}; correct "
        "the name" + (", or let it be fetched once more" if listing.cached else "")
    )


def require_release(path: str | Path) -> Release:
    """The same where there must be one.

    Raises:
        UserError: as ``find_release``; nothing that is known, or a file of weights that is damaged.
    """
    found = find_release(path)
    if found is None:
        expected = "; ".join(f"{kind.name}: {kind.files}" for kind in KINDS)
        if is_regular(path):
            names = list_names(list(read_weights(path).weights))
            raise UserError(
                f"{path}: holds {names}, weights of no kind that is known; expected a released model ({expected})"
            )
        raise UserError(f"{Path(path) / DESCRIPTION}: there is no such file; expected a released model ({expected})")
    return found


def read_release(path: str | Path, *, front_end: str | None = None) -> tuple[nn.Module, ModelDescription]:
    """The network of a release in eval mode with its weights, and its description.

    Args:
        path: a folder, the file of weights beside its description, or hf://org/name[@revision].
        front_end: what its features are, of a release that does not say so; None: what it says.

    Raises:
        UserError: no release, one that is damaged or not known, weights that are NaN or infinite, or a front end stated
            of one that says its own.
    """
    release = require_release(path)
    _check_stated(release, front_end)
    if release.kind.read is None:
        network, description = read_released(release.weights.parent)
        _check_finite(release, network)
        return network, _with_origin(release, description)
    weights, description = _read(release, front_end)
    try:
        with torch.device("meta"):
            check_fit(build_model(**description.model), weights)
    except UserError as error:
        raise _naming(release, error) from error
    network = build_model(**description.model)
    network.load_state_dict(weights)
    _check_finite(release, network)
    return network.eval(), description


def _check_finite(release: Release, network: nn.Module) -> None:
    """Refuse weights that are NaN or infinite; constants of an ONNX graph are not looked at, where both have a use.

    A sum is finite only where all of its numbers are; where it is not, large ones may have made it so.
    """
    numbers = {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}
    if math.isfinite(sum(tensor.sum().item() for tensor in numbers.values())):
        return
    if bad := [name for name, tensor in numbers.items() if not tensor.isfinite().all()]:
        are = "has values" if len(bad) == 1 else "have values"
        raise UserError(
            f"{release.weights}: {list_names(bad)} (under our names) {are} that are NaN or infinite; copy or download "
            "the file again, or use an earlier checkpoint of the training"
        )


def describe(release: Release, *, front_end: str | None = None) -> ModelDescription:
    """The description of a release, whose network is not built; arguments and errors are those of ``read_release``."""
    _check_stated(release, front_end)
    if release.kind.read is None:
        return _with_origin(release, read_description(release.weights.parent))
    return _read(release, front_end)[1]


def _check_stated(release: Release, front_end: str | None) -> None:
    known = release.kind.front_ends
    if front_end is None or front_end in known:
        return
    if not known:
        raise UserError(
            f"{release.source}: front_end is {front_end!r}, but a release of {release.kind.name} says its own; leave "
            "it out"
        )
    raise UserError(f"{release.source}: front_end is {front_end!r}, expected one of {', '.join(known)}")


def pinned(path: str | Path) -> str:
    """An address of the hub with the commit it is at, which is fetched; any other path as it is."""
    return require_release(path).origin or str(path) if hub.is_address(path) else str(path)


def folder_of(path: str | Path) -> Path:
    """Where the files of a release lie: at a path itself, or in the cache of the hub."""
    return require_release(path).weights.parent if hub.is_address(path) else Path(path)


def _read(release: Release, front_end: str | None) -> State:
    assert release.kind.read is not None
    try:
        weights, description = release.kind.read(release.weights, front_end)
    except UserError as error:
        raise _naming(release, error) from error
    return weights, _with_origin(release, description)


def _with_origin(release: Release, description: ModelDescription) -> ModelDescription:
    """The same with the repository and commit that it comes from, and those that it came from before."""
    if release.origin is None:
        return description
    before = description.training.get("source")
    facts = {"source": release.origin} | ({} if before is None else {"source_before": before})
    return replace(description, training={**description.training, **facts})


def _naming(release: Release, error: UserError) -> UserError:
    """The same error, beginning with a file of the release."""
    folder = release.weights.parent
    above = tuple(map(str, (folder, *folder.parents[:2])))  # a checkpoint of a training is described two folders above
    return error if str(error).startswith(above) else UserError(f"{release.weights}: {error}")


def own_folder(path: str | Path) -> Path:
    """The folder of a release of ours, into whose model.yaml something may be written.

    Raises:
        UserError: there is none, it is another toolkit's, or of the hub.
    """
    if hub.is_address(path) or hub.origin_of(path) is not None:
        raise UserError(
            f"{path}: is of the hub, in whose cache nothing may be changed; make a copy with `svt convert-model "
            f"model={path} out=DIR`, and give that folder"
        )
    release = require_release(path)
    if not release.is_ours:
        raise UserError(
            f"{path}: is a release of {release.kind.name}, which has no place for a threshold; write it in our form "
            "with `svt convert-model`, and give that folder"
        )
    return release.weights.parent
