"""A released model by one word: what lies at a path, ours or another toolkit's, and its network and description.

A row of ``KINDS`` is a kind of release: how it is recognised, and how it is read. Nothing in one is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from svtoolkit.checkpoints import modelscope, onnx_release, transformers_release
from svtoolkit.checkpoints.layout import check_fit
from svtoolkit.checkpoints.released import DESCRIPTION, WEIGHTS, ModelDescription, read_description, read_released
from svtoolkit.checkpoints.wespeaker import release as wespeaker
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.system.regular_file import is_regular

State = tuple[dict[str, Tensor], ModelDescription]
"""Weights under our names, and what they are of."""


class Kind(NamedTuple):
    """A row of the table.

    Attributes:
        name: what a release of this kind is called.
        files: those that it consists of, for messages.
        find: path -> its file of weights; None: it is no such release.
        read: file of weights and the name of a front end that the user states, or None -> weights and description;
            None: ours, read by ``read_released``.
        front_ends: those that a user may state, of releases that may not say theirs.
        alone: it counts only where nothing else is found, as of an export that lies beside what it was made of.
    """

    name: str
    files: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path, str | None], State] | None = None
    front_ends: Collection[str] = ()
    alone: bool = False


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


def _ours(path: Path) -> Path | None:
    return path / WEIGHTS if is_regular(path / DESCRIPTION) else None


def _run(path: Path) -> Path | None:
    return _ours(path / "model")


RUN = Kind("run", "model/model.yaml, as `svt average` writes it into the exp_dir of a run", _run)

KINDS = (
    Kind("svtoolkit", f"{DESCRIPTION} and {WEIGHTS}, as written by `svt average`", _ours),
    RUN,
    Kind(
        "WeSpeaker",
        "avg_model.pt and config.yaml, or NAME.pt and NAME.yaml",
        wespeaker.find_weights,
        wespeaker.read,
        wespeaker.FRONT_ENDS,
    ),
    Kind("3D-Speaker", "configuration.json and the weights that it names", modelscope.find_weights, modelscope.read),
    Kind(
        "transformers",
        "config.json of an x-vector head, preprocessor_config.json, and model.safetensors or pytorch_model.bin",
        transformers_release.find_weights,
        transformers_release.read,
    ),
    Kind("ONNX", "NAME.onnx", onnx_release.find_weights, onnx_release.read, onnx_release.STATED, alone=True),
)


def find_release(path: str | Path) -> Release | None:
    """What kind of release lies at a path; None: none that is known.

    Raises:
        UserError: releases of several kinds, or one that lacks a file.
    """
    found = _found(Path(path), alone=False) or _found(Path(path), alone=True)
    if len(found) > 1:
        files = " and ".join(f"{release.weights.name} of {release.kind.name}" for release in found)
        raise UserError(f"{path}: holds releases of several kinds, {files}; put one of them into a folder of its own")
    return found[0] if found else None


def _found(path: Path, *, alone: bool) -> list[Release]:
    return [Release(kind, file) for kind in KINDS if kind.alone == alone and (file := kind.find(path)) is not None]


def require_release(path: str | Path) -> Release:
    """The same where there must be one.

    Raises:
        UserError: as ``find_release``; nothing that is known.
    """
    found = find_release(path)
    if found is None:
        expected = "; ".join(f"{kind.name}: {kind.files}" for kind in KINDS)
        raise UserError(f"{Path(path) / DESCRIPTION}: there is no such file; expected a released model ({expected})")
    return found


def read_release(path: str | Path, *, front_end: str | None = None) -> tuple[nn.Module, ModelDescription]:
    """The network of a release in eval mode with its weights, and its description.

    Args:
        path: a folder, or the file of weights beside its description.
        front_end: what its features are, of a release that does not say so; None: what it says.

    Raises:
        UserError: no release, one that is damaged or not known, or a front end stated of one that says its own.
    """
    release = require_release(path)
    _check_stated(release, front_end)
    if release.kind.read is None:
        return read_released(release.weights.parent)
    weights, description = _read(release, front_end)
    try:
        with torch.device("meta"):
            check_fit(build_model(**description.model), weights)
    except UserError as error:
        raise _naming(release, error) from error
    network = build_model(**description.model)
    network.load_state_dict(weights)
    return network.eval(), description


def describe(release: Release, *, front_end: str | None = None) -> ModelDescription:
    """The description of a release, whose network is not built; arguments and errors are those of ``read_release``."""
    _check_stated(release, front_end)
    if release.kind.read is None:
        return read_description(release.weights.parent)
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


def _read(release: Release, front_end: str | None) -> State:
    assert release.kind.read is not None
    try:
        return release.kind.read(release.weights, front_end)
    except UserError as error:
        raise _naming(release, error) from error


def _naming(release: Release, error: UserError) -> UserError:
    """The same error, beginning with a file of the release."""
    folder = release.weights.parent
    return (
        error if str(error).startswith((str(folder), str(folder.parent))) else UserError(f"{release.weights}: {error}")
    )


def own_folder(path: str | Path) -> Path:
    """The folder of a release of ours, into whose model.yaml something may be written.

    Raises:
        UserError: there is none, or it is another toolkit's.
    """
    release = require_release(path)
    if not release.is_ours:
        raise UserError(
            f"{path}: is a release of {release.kind.name}, which has no place for a threshold; write it in our form "
            "with `svt convert-model`, and give that folder"
        )
    return release.weights.parent
