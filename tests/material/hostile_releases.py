"""Releases that mean harm: a small good one of each kind, and what is made of it, by hand and by chance.

The kinds are rows of ``hostile_kinds``; a new format of weights is a row of ``hostile_files.weight_files``.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import hostile_files
import numpy as np
import safetensors.torch
import torch
from hostile_kinds import RELEASES, changed
from small_releases import DIM, SAMPLES, WESPEAKER, Files, digest, dump_yaml, wespeaker_state


class Case(NamedTuple):
    """A release of the corpus.

    Attributes:
        name: what was done to it.
        files: what its folder holds.
        refused: whether it has to be; what chance made may be numbers alone, still.
    """

    name: str
    files: Files
    refused: bool


VALUES: dict[str, Any] = {
    "nothing": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "2**60": 2**60,
    "a million": 999_999,
    "1e308": 1e308,
    "no number": float("nan"),
    "a text": "os.system('touch HARM')",
    "two lines": "a\nb\x1b[2J",
    "a path": "../../../../etc/passwd",
    "a null character": "a\x00b",
    "a long text": "x" * 5000,
    "half a pair": "\ud800",
    "a list": [1],
    "a mapping": {"__reduce__": "os.system"},
}
"""What any key may be said to be."""


EACH = 3
"""Values that each key is given, others than its neighbours."""


def settings(kind: str) -> Iterator[Case]:
    """The settings of a kind, poisoned: by hand, and key by key."""
    row, sample = RELEASES[kind], SAMPLES[kind]
    for poison in row.poison(kind):
        yield Case(*poison)
    named = list(VALUES.items())
    for index, key in enumerate(row.keys.split()):
        for name, value in (named * 2)[index * EACH % len(named) :][:EACH]:
            try:
                files = sample.files(changed(sample.content, key, value))
            except UnicodeEncodeError:
                continue  # half a pair has no form in YAML, nor in a graph
            yield Case(f"{key} is {name}", files, False)


def weights_by_hand(kind: str) -> Iterator[Case]:
    """Files of weights made by hand, for every format, in the place of a kind's own."""
    row = RELEASES[kind]
    good = SAMPLES[kind].files()
    if row.weights == "model.safetensors":
        for name, content in safetensors_by_hand(good[row.weights]):
            files = {**good, row.weights: content}
            if kind == "ours":
                files = SAMPLES[kind].files({**SAMPLES[kind].content, "weights_sha256": digest(content)})
                files[row.weights] = content
            yield Case(f"{row.weights}: {name}", files, True)
        yield Case("weights of others", {**good, row.weights: safetensors.torch.save(wespeaker_state())}, True)
        return
    every = 1 if kind == "wespeaker" else 4
    for name, content in _files_by_hand()[list(RELEASES).index(kind) % every :: every]:
        yield Case(f"{row.weights}: {name}", {**good, row.weights: content}, True)
    for name, state in states_by_hand(wespeaker_state()):
        for form in ("zip", "legacy") if kind == "wespeaker" else ():
            content = hostile_files.torch_file(state, _use_new_zipfile_serialization=form == "zip")
            yield Case(f"{row.weights}, {form}: {name}", {**good, row.weights: content}, True)


@cache
def _files_by_hand() -> list[tuple[str, bytes]]:
    return [*hostile_files.hand_made(), *archives_by_hand()]


def safetensors_by_hand(good: bytes) -> Iterator[tuple[str, bytes]]:
    length = struct.unpack("<Q", good[:8])[0]
    header, data = json.loads(good[8 : 8 + length]), good[8 + length :]
    first, second = [name for name in header if name != "__metadata__"][:2]

    def file(changed: Any) -> bytes:
        text = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        return struct.pack("<Q", len(text)) + text + data

    def with_first(**values: Any) -> bytes:
        return file({**header, first: {**header[first], **values}})

    yield "a header of 2**60", struct.pack("<Q", 1 << 60) + good[8:]
    yield "a header of 2**63", struct.pack("<Q", 1 << 63) + good[8:]
    yield "a header of nothing", struct.pack("<Q", 0) + good[8:]
    yield "a header of everything", struct.pack("<Q", len(good) - 8) + good[8:]
    yield "a shape of 2**60", with_first(shape=[1 << 60])
    yield "a shape of 2**60 and nothing", with_first(shape=[1 << 60, 0])
    yield "a shape that overflows", with_first(shape=[1 << 33, 1 << 33])
    yield "a negative shape", with_first(shape=[-1])
    yield "a shape of words", with_first(shape=["os.system"])
    yield "offsets of 2**60", with_first(data_offsets=[0, 1 << 60])
    yield "offsets that run back", with_first(data_offsets=[4, 0])
    yield "an offset alone", with_first(data_offsets=[0])
    yield "a type of its own", with_first(dtype="O")
    yield "two in one place", file({**header, first: header[second]})
    yield "one that is missing", file({name: value for name, value in header.items() if name != first})
    yield "one more", file({**header, "more": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    yield "metadata that is no text", file({**header, "__metadata__": {"a": {"b": 1}}})
    yield "a name twice", file(json.dumps(header).encode()[:-1] + b", " + json.dumps({first: 1}).encode()[1:])
    yield "no mapping", file(b"[1, 2]")
    yield "depth", file(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}")
    yield "no data", good[: 8 + length]
    yield "data behind it", good + bytes(64)
    yield "no UTF-8", file(json.dumps(header).encode().replace(first.encode(), b"\xff" * len(first), 1))
    yield "nothing", b""
    yield "a pickle", pickle.dumps(hostile_files.Calls(eval, "open('HARM', 'w')"))
    yield "a file of torch", hostile_files.torch_file({"w": torch.zeros(1)})
    state = safetensors.torch.load(good)
    yield "another shape", safetensors.torch.save({**state, first: torch.zeros(3, 3)})
    yield "a name of two lines", safetensors.torch.save({**state, "a\nb\x1b[2J": torch.zeros(1)})


def states_by_hand(good: dict[str, torch.Tensor]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """State dicts that are none of the network, with names that would make a mess of a message."""
    first = next(iter(good))
    for name, extra in {
        "two lines": "a\nb",
        "an escape": "\x1b[2Ja",
        "a null character": "a\x00b",
        "half a pair": "a\ud800b",
        "from right to left": "a\u202eb",
        "a long one": "x" * 100_000,
        "none": "",
        "a path": "../../HARM",
        "a dunder": "__class__",
        "dots": "." * 2000,
        "digits": "frame_" + "9" * 5000 + ".conv_1d.weight",
        "a number as large as four bytes": f"frame_{2**32}.conv_1d.weight",
    }.items():
        yield f"a name: {name}", {**good, extra: torch.zeros(1)}
    yield "a name that is a number", {**good, 3: torch.zeros(1)}
    yield "a name that is a tuple", {**good, ("a", "b"): torch.zeros(1)}
    yield "many names", {**good, **{f"more.{number}": torch.zeros(1) for number in range(300)}}
    yield "one is missing", {name: value for name, value in good.items() if name != first}
    yield "a shape", {**good, first: torch.zeros(3, 3)}
    yield "no dimension", {**good, first: torch.tensor(1.0)}
    yield "an empty one", {**good, first: torch.zeros(0)}
    yield "one number in all places", {**good, first: torch.zeros(1).expand(1 << 20, 1 << 10)}
    yield "a text for a tensor", {**good, first: "os.system"}
    yield "weights of sparse form", {**good, first: torch.eye(4).to_sparse()}
    yield "complex numbers", {**good, first: torch.zeros(2, dtype=torch.complex64)}
    yield "the head alone", {"projection.weight": torch.zeros(5, DIM)}
    yield "a state dict within two", {"model": {"state_dict": good}}


def archives_by_hand() -> Iterator[tuple[str, bytes]]:
    """Archives whose own numbers lie."""
    weights = hostile_files.torch_file(wespeaker_state())
    for name, content in {"of torch": weights, "of files": _zip_of_files(weights)}.items():
        for field, value in {"file_size": 1 << 60, "header_offset": 1 << 60, "compress_size": 1 << 40}.items():
            yield f"a zip {name} with a {field} of {value}", _lying_zip(content, field, value)
    for size in (1 << 60, (1 << 63) - 1, 1 << 33):
        header = tarfile.TarInfo("model_weights.ckpt")
        header.size = size
        yield f"a .nemo of {size} bytes", header.tobuf(tarfile.GNU_FORMAT) + bytes(2048)
    yield "a gzip that swells", hostile_files.swelling_nemo()
    swollen = hostile_files.zip_of(("m/avg_model.pt", bytes(1 << 24)), ("m/config.yaml", b"model: XVEC\n"))
    yield "a zip that swells and says that it does not", _lying_zip(swollen, "compress_size", 1 << 40)


def _zip_of_files(weights: bytes) -> bytes:
    return hostile_files.zip_of(("m/avg_model.pt", weights), ("m/config.yaml", dump_yaml(WESPEAKER)))


def _lying_zip(content: bytes, field: str, value: int) -> bytes:
    """The same members, the last of which is said to be of another size or in another place."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as archive:
        archive.comment = b" "  # else nothing is written again
        setattr(archive.filelist[0], field, value)
    return stream.getvalue()


FORMATS = ("zip.pt", "legacy.pt", "safetensors", "nemo", "nemo.gz", "wespeaker.zip")
"""Of weights, as ``hostile_files.weight_files`` calls them."""


def good_weights() -> dict[str, bytes]:
    """Format -> the good weights of WeSpeaker's small network in it; each of them loads as avg_model.pt."""
    return hostile_files.weight_files(wespeaker_state(), dump_yaml(WESPEAKER))


def mutations(count: int, seed: int = 0) -> dict[str, list[Case]]:
    """Format of weights, or kind of release -> good ones changed by chance, so many of each."""
    random = np.random.default_rng(seed)
    found: dict[str, list[Case]] = {}
    good = SAMPLES["wespeaker"].files()
    for form, content in good_weights().items():
        found[form] = [
            Case(name, {**good, "avg_model.pt": changed}, False)
            for name, changed in _changes(form, content, [*BYTES, *INSIDE.get(form, ()) * 2], count, random)
        ]
    for kind, row in RELEASES.items():
        files, name = SAMPLES[kind].files(), row.text or row.weights
        inside = {"NeMo": INSIDE["nemo"] * 3, "onnx": ()}.get(kind, () if row.text else INSIDE["zip.pt"])
        changes = _changes(name, files[name], [*BYTES, *inside], count // 2, random)
        found[kind] = [Case(said, {**files, name: changed}, False) for said, changed in changes]
    return found


def _changes(
    what: str, content: bytes, changes: list[Change], count: int, random: np.random.Generator
) -> Iterator[tuple[str, bytes]]:
    for number in range(count):
        change = changes[number % len(changes)]
        yield f"{what}, {change.__name__}, {number}", change(content, random)


Change = Callable[[bytes, np.random.Generator], bytes]


def flip(content: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for place in random.integers(len(content), size=int(random.integers(1, 9))):
        changed[place] ^= 1 << int(random.integers(8))
    return bytes(changed)


def cut(content: bytes, random: np.random.Generator) -> bytes:
    return content[: int(random.integers(len(content)))]


def double(content: bytes, random: np.random.Generator) -> bytes:
    at = int(random.integers(len(content)))
    return content[: at + 64] + content[at:]


def zeros(content: bytes, random: np.random.Generator) -> bytes:
    at = int(random.integers(len(content) - 32))
    return content[:at] + bytes(32) + content[at + 32 :]


def turn(content: bytes, random: np.random.Generator) -> bytes:
    at = int(random.integers(len(content) - 16))
    return content[:at] + content[at : at + 16][::-1] + content[at + 16 :]


def number(content: bytes, random: np.random.Generator) -> bytes:
    at = int(random.integers(len(content) - 8))
    value = int(random.choice([1 << 60, (1 << 63) - 1, 0xFFFFFFFF, int(random.integers(1 << 62))]))
    return content[:at] + struct.pack("<q", value) + content[at + 8 :]


BYTES: tuple[Change, ...] = (flip, cut, double, zeros, turn, number)


def _members(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def _zipped(members: list[tuple[str, bytes]]) -> bytes:
    return hostile_files.zip_of(*members, compression=zipfile.ZIP_STORED)


def opcode(content: bytes, random: np.random.Generator) -> bytes:
    """Another instruction in the pickle of a zip, whose checksums are right again."""
    members = dict(_members(content))
    name = next(name for name in members if name.endswith("data.pkl"))
    data = members[name]
    places = [place for _, _, place in pickletools.genops(data) if place is not None]
    at = int(random.choice(places))
    other = int(random.choice([data[place] for place in places] + [ord(each.code) for each in pickletools.opcodes]))
    members[name] = data[:at] + bytes([other]) + data[at + 1 :]
    return _zipped(list(members.items()))


def in_pickle(content: bytes, random: np.random.Generator) -> bytes:
    """Bits of the pickle of a zip, whose checksums are right again."""
    members = dict(_members(content))
    name = next(name for name in members if name.endswith("data.pkl"))
    members[name] = flip(members[name], random)
    return _zipped(list(members.items()))


def exchange(content: bytes, random: np.random.Generator) -> bytes:
    """Two members have each other's name."""
    members = _members(content)
    a, b = (int(place) for place in random.choice(len(members), 2, replace=False))
    members[a], members[b] = (members[a][0], members[b][1]), (members[b][0], members[a][1])
    return _zipped(members)


def rename(content: bytes, random: np.random.Generator) -> bytes:
    members = _members(content)
    at = int(random.integers(len(members)))
    name = str(random.choice(["../HARM", "/tmp/HARM", "archive/data.pkl", "a/code/", "x" * 3000, "..\\HARM", "a//b"]))
    members[at] = (name, members[at][1])
    return _zipped(members)


def drop(content: bytes, random: np.random.Generator) -> bytes:
    members = _members(content)
    del members[int(random.integers(len(members)))]
    return _zipped(members)


def directory(content: bytes, random: np.random.Generator) -> bytes:
    """A number of a zip's own: in the header of a member, in the list of them or at its end."""
    mark, size = ((b"PK\3\4", 30), (b"PK\1\2", 46), (b"PK\5\6", 22))[int(random.integers(3))]
    places = [at for at in range(len(content)) if content.startswith(mark, at)]
    at = int(random.choice(places)) + 4 + int(random.integers(size - 6))
    value = struct.pack("<I", int(random.choice([0, 1, 0xFFFF, 0xFFFFFFFF, int(random.integers(1 << 32))])))
    return content[:at] + value + content[at + 4 :]


def header(content: bytes, random: np.random.Generator) -> bytes:
    """Bits of the JSON of a file of safetensors, and its length again."""
    length = struct.unpack("<Q", content[:8])[0]
    text = flip(content[8 : 8 + length], random)
    return content[:8] + text + content[8 + length :]


def tar_header(content: bytes, random: np.random.Generator) -> bytes:
    """A field of a header of a tar, whose checksum is right again."""
    places = [at for at in range(0, len(content) - 511, 512) if content.startswith(b"ustar", at + 257)]
    at = int(random.choice(places))
    block = bytearray(content[at : at + 512])
    place, size = ((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (345, 155))[int(random.integers(7))]
    for index in range(place, place + min(size, 12)):
        block[index] = int(random.integers(256))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return content[:at] + bytes(block) + content[at + 512 :]


INSIDE: dict[str, tuple[Change, ...]] = {
    "zip.pt": (opcode, in_pickle, opcode, in_pickle, exchange, rename, drop, directory),
    "safetensors": (header,),
    "nemo": (tar_header,),
    "wespeaker.zip": (exchange, rename, drop, directory),
}
"""Format -> changes that its checksums do not tell."""


IN_ITS_PLACE: dict[str, Callable[[str], None]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: os.symlink("/dev/zero", path),
    "a link to itself": lambda path: os.symlink(path, path),
    "a link to nowhere": lambda path: os.symlink("/nowhere/at/all", path),
    "a folder": os.mkdir,
}
"""What may be where a file is expected -> makes it there."""
