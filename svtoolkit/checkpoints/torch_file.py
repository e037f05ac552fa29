"""Files of ``torch.save``, both forms: the zip since torch 1.6 and the chain of pickles before; nothing is executed.

Of the tensors only those that are asked for are read, each storage once, and never more bytes than the file holds.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Any

import torch
from torch import Tensor

from svtoolkit.checkpoints.inert_pickle import LARGEST_PICKLE, read_pickle
from svtoolkit.checkpoints.pickled_names import PickleError, Storage, TensorPlace

MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of the form before torch 1.6."""

MOST_MEMBERS = 100_000


class TorchFile:
    """An open file of ``torch.save``.

    Attributes:
        content: the object that was saved, its tensors as ``TensorPlace``.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        """Read the description; the stream has to stay open.

        Raises:
            PickleError: no such file, or one with anything but data in it.
        """
        self._loaded: dict[str, Tensor] = {}
        if zipfile.is_zipfile(stream):
            self.content, self._bytes_of = _open_zip(stream)
        else:
            stream.seek(0)
            self.content, self._bytes_of = _open_legacy(stream)

    def tensors(self, places: Iterable[TensorPlace]) -> list[Tensor]:
        """Tensors on the CPU that share the memory of their storages.

        Raises:
            PickleError: one reaches beyond its storage, or a storage beyond the file.
        """
        return [self._tensor(place) for place in places]

    def _tensor(self, place: TensorPlace) -> Tensor:
        items = math.prod(place.size)
        last = sum((size - 1) * stride for size, stride in zip(place.size, place.stride, strict=True))
        if items > place.storage.items or (items and place.offset + last >= place.storage.items):
            raise PickleError(
                f"a tensor of the shape {place.size} does not lie within its storage of {place.storage.items} items"
            )
        storage = self._storage(place.storage)
        return torch.as_strided(storage, place.size, place.stride, place.offset if items else 0)

    def _storage(self, storage: Storage) -> Tensor:
        if storage.key not in self._loaded:
            dtype = getattr(torch, storage.dtype)
            content = self._bytes_of(storage.key, storage.items * dtype.itemsize)
            self._loaded[storage.key] = (
                torch.frombuffer(content, dtype=torch.uint8).view(dtype) if content else torch.empty(0, dtype=dtype)
            )
        loaded = self._loaded[storage.key]
        if loaded.numel() != storage.items or str(loaded.dtype) != f"torch.{storage.dtype}":
            raise PickleError(f"its storage {storage.key[:40]!r} is described twice, and differently")
        return loaded


_Reader = Callable[[str, int], bytearray]
"""Key and number of bytes of a storage -> its bytes."""


def _open_zip(stream: IO[bytes]) -> tuple[Any, _Reader]:
    archive = zipfile.ZipFile(stream)
    members = {member.filename: member for member in archive.infolist()}
    if len(members) > MOST_MEMBERS or len(members) != len(archive.infolist()):
        raise PickleError(f"it has more than {MOST_MEMBERS} members, or two of one name")
    if sum(member.file_size for member in members.values()) > stream.seek(0, 2):
        raise PickleError("its members have more bytes than the file: they are compressed, or lie upon each other")
    pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise PickleError("it is a zip without the data.pkl that torch.save writes")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in members or f"{root}code/" in members:
        raise PickleError("it is TorchScript, a program, of which weights alone cannot be taken")

    def read(name: str, size: int | None) -> bytes:
        member = members.get(name)
        if member is None:
            raise PickleError(f"it lacks the member {name[:80]!r}")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise PickleError(f"its member {name[:80]!r} is compressed, which torch.save never does")
        if size is not None and member.file_size != size:
            raise PickleError(f"its member {name[:80]!r} has {member.file_size} bytes, expected {size}")
        if size is None and member.file_size > LARGEST_PICKLE:
            raise PickleError(
                f"its member {name[:80]!r} has {member.file_size} bytes, expected at most {LARGEST_PICKLE}"
            )
        return archive.read(member)

    if f"{root}byteorder" in members and read(f"{root}byteorder", None) != b"little":
        raise PickleError("it was written on a machine whose numbers begin with their highest byte")
    content = read_pickle(io.BytesIO(read(pickles[0], None)))
    return content, lambda key, size: bytearray(read(f"{root}data/{key}", size))


def _open_legacy(stream: IO[bytes]) -> tuple[Any, _Reader]:
    if read_pickle(stream) != MAGIC:
        raise PickleError("it is a pickle, but not of torch.save")
    version, machine = read_pickle(stream), read_pickle(stream)
    if version != 1001 or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise PickleError("it is of another version of torch.save, or of a machine of another byte order")
    content, keys = read_pickle(stream), read_pickle(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise PickleError("it lacks the list of its storages")
    begin = stream.tell()
    end = stream.seek(0, 2)
    sizes = _item_sizes(content)
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        stream.seek(begin)
        head = stream.read(8)
        items = struct.unpack("<q", head)[0] if len(head) == 8 else -1
        size = items * sizes.get(key, 1)
        if items < 0 or begin + 8 + size > end or key not in sizes:
            raise PickleError("its storages are cut off")
        places[key] = begin + 8, size
        begin += 8 + size

    def read(key: str, size: int) -> bytearray:
        if places.get(key, (0, -1))[1] != size:
            raise PickleError(f"its storage {key[:40]!r} has another size than its tensors say")
        stream.seek(places[key][0])
        return bytearray(stream.read(size))

    return content, read


def _item_sizes(content: Any) -> dict[str, int]:
    """Key of a storage -> bytes of an item; every list and mapping is looked into once."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    left = [content]
    while left:
        item = left.pop()
        if isinstance(item, TensorPlace):
            sizes[item.storage.key] = getattr(torch, item.storage.dtype).itemsize
        elif isinstance(item, dict | list | tuple) and id(item) not in seen:
            seen.add(id(item))
            left += item.values() if isinstance(item, dict) else item
    return sizes
