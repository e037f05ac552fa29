"""What a pickle of weights names, as data: storages, tensors, mappings, and classes that are words without content."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
"""Class of torch -> dtype of its items."""

_HARMLESS = re.compile(
    r"torch\.(device|Size|dtype|torch_version\.TorchVersion|float\d\d|int\d\d?|bool|bfloat16)"
    r"|pyannote\.(audio|core)\.[\w.]+"
    r"|omegaconf\.[\w.]+|typing\.Any"
    r"|argparse\.Namespace|pathlib\.(Pure)?(Posix|Windows)Path"
    r"|(pytorch_)?lightning\.[\w.]+"
    r"|numpy\.(_?core\.multiarray\.(scalar|_reconstruct)|dtype|ndarray|dtypes\.\w+)|_codecs\.encode"
    r"|(builtins|__builtin__)\.(dict|list|tuple|set|frozenset|int|long|float|str|unicode|bytes|bool|object)"
    r"|copy_?reg\._reconstructor"
)
"""Names that released checkpoints have beside their weights; an object of theirs is an ``Inert``."""


class PickleError(ValueError):
    """What is no pickle of weights, in a few words."""


class Name(NamedTuple):
    """A class or function that a pickle names."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}"


class Inert(NamedTuple):
    """An object of a class that is not looked at."""

    name: Name


class Storage(NamedTuple):
    """What tensors lie in.

    Attributes:
        key: of the storage in its file.
        dtype: of torch, by name.
        items: how many the pickle says that it has.
    """

    key: str
    dtype: str
    items: int


class TensorPlace(NamedTuple):
    """A tensor: where it begins in its storage, and its geometry, all in items."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def known(name: Name) -> Name:
    if str(name) in _MADE or (name.module == "torch" and name.attribute in STORAGES):
        return name
    if _HARMLESS.fullmatch(str(name)):
        return name
    raise PickleError(f"it names {str(name)[:80]!r}, which is no part of weights and would be run by another reader")


def made(function: Name, arguments: tuple[Any, ...]) -> Any:
    make = _MADE.get(str(function))
    return Inert(function) if make is None else make(*arguments)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> TensorPlace:
    numbers = [offset, *size, *stride]
    if not isinstance(storage, Storage) or not all(type(number) is int and number >= 0 for number in numbers):
        raise PickleError("it describes a tensor by what is no storage or no size")
    if len(size) != len(stride):
        raise PickleError(f"it describes a tensor of {len(size)} sizes and {len(stride)} strides")
    return TensorPlace(storage, offset, tuple(size), tuple(stride))


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _mapping(*arguments: Any) -> dict[Any, Any]:
    if not arguments:
        return {}
    (pairs,) = arguments
    return {key: value for key, value in pairs if isinstance(key, str | int)}


def _default_mapping(*_: Any) -> dict[Any, Any]:
    return {}


_MADE: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _default_mapping,
}


def storage_of(identity: Any) -> Storage:
    """What torch.save calls a storage: ("storage", class, key, device, items, ...)."""
    if not (isinstance(identity, tuple) and len(identity) >= 5 and identity[0] in ("storage", b"storage")):
        raise PickleError("it refers to something that is no storage of tensors")
    kind, key, items = identity[1], identity[2], identity[4]
    if len(identity) > 5 and identity[5] is not None:
        raise PickleError("it has storages that are views of others, as torch before 0.4 made them")
    if not (isinstance(kind, Name) and kind.attribute in STORAGES and isinstance(key, str) and type(items) is int):
        raise PickleError("it has a storage of an unknown type")
    return Storage(key, STORAGES[kind.attribute], items)
