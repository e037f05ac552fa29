"""Files of weights that mean harm, made by hand for every format, and mutations of good ones."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import safetensors.torch
import torch

NEMO_SETTINGS = b"_target_: os.system\nsample_rate: 16000\n"
SETTINGS = b"model: ResNet34\nmodel_args: {feat_dim: 80}\n"


def state() -> dict[str, torch.Tensor]:
    """Ten weights of all kinds of layers."""
    made = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(value.shape, generator=generator) for name, value in made.state_dict().items()}


def torch_file(content: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


def tar_of(*members: tuple[str, bytes], change: Any = None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1.5  # a fraction: what Python writes, with an extended header
            if change is not None:
                change(info)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def members_of_tar(content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for info in archive.getmembers():
            stream = archive.extractfile(info)
            assert stream is not None
            yield info.name, stream.read()


def zip_of(*members: tuple[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def weight_files(state: dict[str, torch.Tensor], settings: bytes) -> dict[str, bytes]:
    """Format -> the content of a good file of such weights."""
    weights = torch_file(state)
    return {
        "zip.pt": weights,
        "legacy.pt": torch_file({"model_state": state, "step": 3}, _use_new_zipfile_serialization=False),
        "safetensors": safetensors.torch.save(state),
        "nemo": tar_of(("./model_config.yaml", NEMO_SETTINGS), ("./model_weights.ckpt", weights)),
        "nemo.gz": gzip.compress(tar_of(("model_weights.ckpt", weights), ("model_config.yaml", NEMO_SETTINGS))),
        "wespeaker.zip": zip_of(("voxceleb/avg_model.pt", weights), ("voxceleb/config.yaml", settings)),
    }


def valid_files() -> dict[str, bytes]:
    """Format -> the content of a good file of ``state()``."""
    return weight_files(state(), SETTINGS)


SWOLLEN = 80 << 20
"""Bytes that ``swelling_nemo`` says to be weights, and unpacks to."""


def swelling_nemo() -> bytes:
    """A gzip of 100 kB whose tar has a member of nothing but zeros; whoever unpacks it first needs all its memory."""
    member = tarfile.TarInfo("model_weights.ckpt")
    member.size = SWOLLEN
    packer = zlib.compressobj(1, wbits=31)
    parts = [packer.compress(member.tobuf())]
    chunk = bytes(1 << 20)
    parts += [packer.compress(chunk) for _ in range(SWOLLEN >> 20)]
    return b"".join([*parts, packer.flush()])


class Calls:
    """Pickled as a call of what it names."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def torch_zip(data: bytes, **members: bytes) -> bytes:
    """A zip as torch.save makes one, with a pickle and storages of one's own; "0" is the name data_0."""
    inside = [(f"archive/{name.replace('data_', 'data/')}", content) for name, content in members.items()]
    return zip_of(("archive/data.pkl", data), *inside, compression=zipfile.ZIP_STORED)


def described(items: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """A pickle of {"w": a tensor} with a geometry of one's own."""

    def text(word: str) -> bytes:
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def number(value: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", value)

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    identity = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(items) + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + identity + number(offset) + numbers(size) + numbers(stride)
    return b"\x80\x02}" + text("w") + tensor + b"\x89ccollections\nOrderedDict\n)RtRs."


def hand_made() -> Iterator[tuple[str, bytes]]:
    """Name, content: every one has to be refused."""
    import builtins
    import importlib
    import os
    import subprocess

    calls = {
        "system": Calls(os.system, "touch HARM"),
        "popen": Calls(subprocess.Popen, ["touch", "HARM"]),
        "exec": Calls(builtins.exec, "open('HARM', 'w')"),
        "eval": Calls(builtins.eval, "open('HARM', 'w')"),
        "open": Calls(builtins.open, "HARM", "w"),
        "import": Calls(importlib.import_module, "antigravity"),
        "getattr": Calls(getattr, "text", "upper"),
        "torch.load": Calls(torch.load, "HARM"),
        "hub": Calls(torch.hub.load, "someone/something", "model"),
    }
    for name, call in calls.items():
        for form, options in (("zip", {}), ("legacy", {"_use_new_zipfile_serialization": False})):
            yield f"{name} beside weights, {form}", torch_file({"state_dict": state(), "extra": call}, **options)
        yield f"{name} as a weight", torch_file({**state(), "w": call})
        yield f"{name}, a plain pickle", pickle.dumps(call)
        weights = torch_file({"model": state(), "extra": call})
        yield f"{name} in a .nemo", tar_of(("model_config.yaml", b"a: 1\n"), ("model_weights.ckpt", weights))
        yield f"{name} in a zip", zip_of(("m/avg_model.pt", weights), ("m/config.yaml", SETTINGS))
    yield "a module", torch_file(torch.nn.Linear(2, 2))
    yield "TorchScript", torch_zip(described(4, (4,), (1,)), data_0=bytes(16), **{"constants.pkl": b"\x80\x02)."})
    weights = torch_file(state())
    yield "no weights", torch_file({"epoch": 3})
    yield "a list", torch_file([torch.zeros(2)])
    yield "numbers in a state dict", torch_file({"state_dict": {**state(), "w": 1.0}})
    yield "a storage that the file lacks", torch_zip(described(4, (4,), (1,)))
    yield "a storage of fewer bytes", torch_zip(described(1 << 40, (4,), (1,)), data_0=bytes(16))
    yield "beyond its storage", torch_zip(described(4, (5,), (1,)), data_0=bytes(16))
    yield "an offset beyond", torch_zip(described(4, (1,), (1,), 1 << 60), data_0=bytes(16))
    yield "a stride beyond", torch_zip(described(4, (2, 2), (1 << 60, 1)), data_0=bytes(16))
    yield "one number a terabyte wide", torch_zip(described(4, (1 << 38,), (0,)), data_0=bytes(16))
    yield "negative sizes", torch_zip(described(4, (-1,), (1,)), data_0=bytes(16))
    yield "a compressed storage", zip_of(("a/data.pkl", described(1 << 22, (4,), (1,))), ("a/data/0", bytes(1 << 24)))
    yield "two pickles", zip_of(("a/data.pkl", described(4, (4,), (1,))), ("b/data.pkl", b"."), ("a/data/0", bytes(16)))
    for name, data in {
        "a huge memo": b"\x80\x02}r\xff\xff\xff\x7f.",
        "a huge text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
        "huge bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.",
        "no end": b"\x80\x02}",
        "nothing": b"",
        "an empty stack": b"\x80\x02.",
        "no mark": b"\x80\x02t.",
        "tuples within tuples as a key": b"\x80\x02}(" + b")" + b"q\x00h\x00\x86" * 60 + b"K\x01u.",
        "an extension": b"\x80\x02\x82\x01.",
        "a persistent id of text": b"\x80\x02Pos.system\n.",
        "a class made by NEWOBJ": b"\x80\x02cos\nsystem\n)\x81.",
        "an INST": b"(S'touch HARM'\nios\nsystem\n.",
        "an OBJ": b"(cos\nsystem\nS'touch HARM'\no.",
        "a call of a call": b"\x80\x02ccollections\nOrderedDict\n)R)R.",
        "a dotted name": b"\x80\x04\x8c\x05torch\x8c\x0dhub._os.system\x93.",
    }.items():
        yield f"{name}, zip", torch_zip(data)
        yield f"{name}, alone", data
    config = ("model_config.yaml", NEMO_SETTINGS)
    good = ("model_weights.ckpt", weights)
    yield "a .nemo that climbs", tar_of(config, ("../HARM", b"x"), good)
    yield "an absolute .nemo", tar_of(config, ("/tmp/HARM", b"x"), good)

    def link(info: tarfile.TarInfo) -> None:
        if info.name == "model_weights.ckpt":
            info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0

    def hard_link(info: tarfile.TarInfo) -> None:
        if info.name == "model_weights.ckpt":
            info.type, info.linkname, info.size = tarfile.LNKTYPE, "model_config.yaml", 0

    def device(info: tarfile.TarInfo) -> None:
        if info.name == "model_weights.ckpt":
            info.type, info.size = tarfile.CHRTYPE, 0

    for name, change in (("symbolic link", link), ("hard link", hard_link), ("device", device)):
        yield f"a .nemo with a {name}", tar_of(config, good, change=change)
    yield "a .nemo with two weights", tar_of(config, good, good)
    yield "a .nemo without settings", tar_of(good)
    yield "a .nemo without weights", tar_of(config)
    yield "a .nemo of a long YAML", tar_of(("model_config.yaml", b"a: 1\n" * 400_000), good)
    yield "a .nemo of many aliases", tar_of(("model_config.yaml", ALIASES), good)
    yield "a .nemo of no YAML", tar_of(("model_config.yaml", b"a: [1\n"), good)
    yield "a .nemo cut off", tar_of(config, good)[:3000]
    header = tarfile.TarInfo("model_weights.ckpt")
    header.size = 1 << 42
    yield "a .nemo of terabytes", tar_of(config) + header.tobuf()
    extended = tarfile.TarInfo("x")
    extended.type, extended.size = tarfile.XHDTYPE, 1 << 30
    yield "a .nemo of long names", extended.tobuf()
    yield "a gzip of nothing", gzip.compress(b"")
    yield "a gzip of zeros", gzip.compress(bytes(1 << 22))
    yield "a gzip cut off", gzip.compress(tar_of(config, good))[:-200]
    yield "a zip that climbs", zip_of(("../avg_model.pt", weights), ("config.yaml", SETTINGS))
    yield "an absolute zip", zip_of(("/avg_model.pt", weights), ("config.yaml", SETTINGS))
    yield "a zip of two weights", zip_of(("a.pt", weights), ("b.pt", weights), ("config.yaml", SETTINGS))
    yield "a zip of none", zip_of(("config.yaml", SETTINGS))
    yield "a zip within a zip", zip_of(("a.pt", zip_of(("b.pt", weights))))
    yield "a zip that swells", zip_of(("a.pt", bytes(1 << 24)), ("config.yaml", SETTINGS))
    yield "a zip with aliases", zip_of(("a.pt", weights), ("config.yaml", ALIASES))
    yield "a header of terabytes", struct.pack("<Q", 1 << 42) + b'{"w":{}}'
    for name, text in {
        "offsets beyond": b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,1099511627776]}}',
        "a shape beyond": b'{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,16]}}',
        "a type of its own": b'{"w":{"dtype":"os.system","shape":[4],"data_offsets":[0,16]}}',
        "no JSON": b'{"w":',
    }.items():
        yield f"safetensors: {name}", struct.pack("<Q", len(text)) + text + bytes(16)
    yield "an empty file", b""
    yield "text", b"#!/bin/sh\ntouch HARM\n"
    yield "HTML", b"<!DOCTYPE html><html>404</html>" * 30


ALIASES = b"a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n"

HOSTILE_YAML = {
    "aliases": ALIASES,
    "depth": b"[" * 400,
    "no YAML": b"a: {b\n",
    "bytes": b"a: \xff\n",
    "length": b"a: 1\n" * 400_000,
    "a key of a list": b"? [1, 2]\n: 3\n",
}


def pyannote_checkpoint() -> dict[str, Any]:
    """What pyannote and lightning put beside the weights; classes of these names have to be importable to write it."""
    from pyannote.audio.core.task import Problem, Resolution, Specifications  # type: ignore[import-not-found]

    return {
        "state_dict": OrderedDict((f"resnet.{name}", value) for name, value in state().items()),
        "hyper_parameters": {"sample_rate": 16000, "num_channels": 1},
        "pytorch-lightning_version": "1.9.0",
        "pyannote.audio": {
            "versions": {"torch": torch.torch_version.TorchVersion("2.0.0")},
            "architecture": {"module": "pyannote.audio.models.embedding.wespeaker", "class": "WeSpeakerResNet34"},
            "specifications": Specifications(Problem(2), Resolution(2), 5.0),
        },
    }
