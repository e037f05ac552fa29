"""Weights from the files of other toolkits, by what is in a file and not by its name; nothing in one is executed.

- files of ``torch.save``: WeSpeaker, 3D-Speaker, SpeechBrain, pyannote, ReDimNet, Resemblyzer
- safetensors
- ``.nemo``: a tar, plain or of gzip, of which ``model_weights.ckpt`` and ``model_config.yaml`` are read
- a zip with weights and their YAML, as WeSpeaker publishes them

Members of archives are read into memory one by one, of a bounded size; nothing is unpacked.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import safetensors
import safetensors.torch
from torch import Tensor

from svtoolkit.checkpoints.pickled_names import Inert, Name, PickleError, Storage, TensorPlace
from svtoolkit.checkpoints.tar_members import read_tar_members
from svtoolkit.checkpoints.torch_file import TorchFile
from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import MalformedError, Tagged, parse_json, parse_tagged_yaml, read_text
from svtoolkit.system.regular_file import is_regular

LARGEST_WEIGHTS = 8 << 30
"""Bytes of a member with weights."""

LARGEST_SETTINGS = 1 << 20
"""Bytes of a YAML file."""

LARGEST_RATIO = 20
"""Of a member's bytes to those it takes in its archive; weights hardly shrink."""

STATE_KEYS = ("state_dict", "model", "model_state_dict", "model_state")
"""Under one of these a checkpoint has its weights, where it is no state dict itself."""

DEEPEST, MOST_VALUES, MOST_BITS = 32, 1_000_000, 4096
"""Of what stands beside the weights of a checkpoint; Python does not write longer numbers into a message."""

GZIP, TAR = b"\x1f\x8b", b"ustar"
NEMO_WEIGHTS, NEMO_SETTINGS = "model_weights.ckpt", "model_config.yaml"


@dataclass
class ForeignWeights:
    """What a file of another toolkit holds.

    Attributes:
        weights: name -> tensor, as that toolkit calls them.
        beside: what stands beside the weights in a checkpoint, plain data; of an object of a class nothing is left.
        settings: the YAML of an archive, ``Tagged`` where it has tags; None: there is none.
    """

    weights: dict[str, Tensor]
    beside: dict[str, Any] = field(default_factory=dict)
    settings: Any = None


def read_weights(path: str | Path) -> ForeignWeights:
    """Read the weights of a file.

    Raises:
        UserError: it is not there, damaged, of another format, too large, or names what is not known to be harmless.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected the weights of a released model")
    try:
        with open(path, "rb") as stream:
            head = stream.read(512)
            stream.seek(0)
            if head[:2] == GZIP:
                most = LARGEST_RATIO * os.path.getsize(path) + LARGEST_SETTINGS
                with gzip.open(stream) as unpacked:
                    return _of_nemo(cast(IO[bytes], unpacked), most)
            if head[257:262] == TAR:
                return _of_nemo(stream)
            if head[8:10] in (b'{"', b"{ ", b"{}"):
                return ForeignWeights(safetensors.torch.load_file(path))
            if zipfile.is_zipfile(stream) and not _is_torch(stream):
                return _of_zip(stream)
            return _of_torch(stream)
    except (PickleError, MalformedError) as error:
        raise UserError(f"{path}: cannot be used: {error}; {REMEDY}") from error
    except (
        OSError, EOFError, MemoryError, NotImplementedError, RuntimeError, ValueError, zlib.error,
        zipfile.BadZipFile, safetensors.SafetensorError,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason}); {REMEDY}") from error


_glances: ContextVar[dict[str, dict[Any, Any] | None] | None] = ContextVar("glances", default=None)


@contextmanager
def every_file_once() -> Iterator[None]:
    """Within, ``glance`` opens every file once, however many kinds of releases ask for it."""
    before = _glances.set({})
    try:
        yield
    finally:
        _glances.reset(before)


def glance(path: str | Path) -> dict[Any, Any] | None:
    """The mapping that a file of torch.save holds, its tensors as ``TensorPlace``: none of them is read.

    None: it is no such file, or one that ``read_weights`` refuses.
    """
    seen = _glances.get()
    if seen is None:
        return _glance(path)
    if str(path) not in seen:
        seen[str(path)] = _glance(path)
    return seen[str(path)]


def _glance(path: str | Path) -> dict[Any, Any] | None:
    try:
        with open(path, "rb") as stream:
            content = TorchFile(stream).content
    except (OSError, EOFError, MemoryError, NotImplementedError, RuntimeError, ValueError, zipfile.BadZipFile):
        return None
    return content if isinstance(content, dict) else None


def is_tar(path: str | Path) -> bool:
    """Whether a file begins as a tar, plain or of gzip: what NeMo's files are."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(512)
    except OSError:  # what it is, read_weights says
        return False
    return head[:2] == GZIP or head[257:262] == TAR


REMEDY = "download it again from its publisher, or ask there for its weights as safetensors"


def read_json_settings(path: Path) -> dict[str, Any]:
    """The mapping of a JSON file beside weights.

    Raises:
        UserError: it is none, or larger than settings are.
    """
    try:
        content = parse_json(read_text(path, most=LARGEST_SETTINGS))
    except MalformedError as error:
        raise UserError(f"{path}: is not JSON ({error}); copy it again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds a {type(content).__name__}, expected a mapping; copy it again")
    return content


def read_foreign_settings(path: str | Path, *, aliases: bool = False) -> Any:
    """A YAML file of another toolkit as plain data: tags such as ``!new:`` stay words, in ``Tagged``.

    Args:
        path: of the file.
        aliases: whether it may have any: ``parse_tagged_yaml`` says what becomes of them.

    Raises:
        UserError: it is not there, larger than ``LARGEST_SETTINGS``, no YAML, has aliases or is nested too deep.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected the YAML that was published with the weights")
    with open(path, "rb") as stream:
        content = stream.read(LARGEST_SETTINGS + 1)
    try:
        return _settings(content, aliases=aliases)
    except MalformedError as error:
        raise UserError(f"{path}: cannot be used: {error}; {REMEDY}") from error


def _settings(content: bytes, *, aliases: bool = False) -> Any:
    if len(content) > LARGEST_SETTINGS:
        raise MalformedError(f"its YAML has more than {LARGEST_SETTINGS} bytes")
    try:
        return parse_tagged_yaml(content.decode("utf-8"), aliases=aliases)
    except UnicodeDecodeError as error:
        raise MalformedError("its YAML is not UTF-8") from error


def _is_torch(stream: IO[bytes]) -> bool:
    with zipfile.ZipFile(stream) as archive:
        return any(name.count("/") == 1 and name.endswith("/data.pkl") for name in archive.namelist())


def _of_torch(stream: IO[bytes]) -> ForeignWeights:
    file = TorchFile(stream)
    state, beside = _state_of(file.content)
    odd = [name for name, value in state.items() if not (isinstance(name, str) and isinstance(value, TensorPlace))]
    if odd:
        raise PickleError(f"of its state dict {str(odd[0])[:60]!r} is no tensor")
    weights = dict(zip(state, file.tensors(state.values()), strict=True))
    left = [MOST_VALUES]
    return ForeignWeights(weights, {str(key): _plain(value, left) for key, value in beside.items()})


def _state_of(content: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The state dict of a checkpoint, and what stands beside it."""
    if isinstance(content, dict):
        for key in STATE_KEYS:
            if isinstance(content.get(key), dict) and _has_tensors(content[key]):
                return content[key], {other: value for other, value in content.items() if other != key}
        if _has_tensors(content):
            state = {name: value for name, value in content.items() if isinstance(value, TensorPlace)}
            return state, {name: value for name, value in content.items() if name not in state}
    raise PickleError(f"it holds no state dict, plain or under {', '.join(STATE_KEYS)}")


def _has_tensors(mapping: dict[Any, Any]) -> bool:
    return any(isinstance(value, TensorPlace) for value in mapping.values())


def _plain(value: Any, left: list[int], depth: int = 0) -> Any:
    """Numbers, text, lists and mappings; None for tensors and for objects of classes.

    ``left``: how many values more there may be; one may stand in many places.
    """
    left[0] -= 1
    if depth > DEEPEST or left[0] < 0:
        raise PickleError(f"beside its weights it has more than {MOST_VALUES} values, or {DEEPEST} levels")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise PickleError(f"beside its weights it has a number of more than {MOST_BITS} bits")
    if isinstance(value, TensorPlace | Inert | Name | Storage) or value is None:
        return None
    if isinstance(value, dict):
        return {key: _plain(item, left, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, left, depth + 1) for item in value]
    return value


def _of_nemo(stream: IO[bytes], most: int = LARGEST_WEIGHTS) -> ForeignWeights:
    limits = {NEMO_WEIGHTS: min(most, LARGEST_WEIGHTS), NEMO_SETTINGS: LARGEST_SETTINGS}
    members = read_tar_members(stream, limits)
    settings = _settings(members[NEMO_SETTINGS])
    read = _of_torch(io.BytesIO(members[NEMO_WEIGHTS]))
    read.settings = settings
    return read


def _of_zip(stream: IO[bytes]) -> ForeignWeights:
    size = stream.seek(0, io.SEEK_END)
    with zipfile.ZipFile(stream) as archive:
        content = {".pt": LARGEST_WEIGHTS, ".yaml": LARGEST_SETTINGS}
        found: dict[str, list[zipfile.ZipInfo]] = {suffix: [] for suffix in content}
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
                raise PickleError(f"its member {member.filename[:80]!r} points out of the archive")
            if path.suffix in found and not path.name.startswith("."):
                found[path.suffix].append(member)
        if len(found[".pt"]) != 1 or len(found[".yaml"]) > 1:
            raise PickleError(
                f"it is a zip with {len(found['.pt'])} files .pt and {len(found['.yaml'])} .yaml, expected one and one"
            )
        for suffix, members in found.items():
            for member in members:
                if member.compress_size > size:
                    raise PickleError(f"its member {member.filename[:80]!r} has more bytes than the archive")
                most = min(content[suffix], LARGEST_RATIO * member.compress_size + LARGEST_SETTINGS)
                if member.file_size > most:
                    raise PickleError(
                        f"its member {member.filename[:80]!r} has {member.file_size} bytes, expected at most {most}"
                    )
        read = _of_torch(io.BytesIO(archive.read(found[".pt"][0])))
        if found[".yaml"]:
            read.settings = _settings(archive.read(found[".yaml"][0]))
        return read


__all__ = ["ForeignWeights", "Tagged", "glance", "is_tar", "read_foreign_settings", "read_weights"]
