"""Embeddings as Kaldi ark/scp, through kaldiio."""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import kaldiio
import numpy as np
from kaldiio.matio import read_kaldi

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import check_regular, is_regular

_BINARY, _TEXT = b"\0B", b"["
_FLOAT_VECTOR = _BINARY + b"FV \4"  # then the length, 4 bytes as this says
_LENGTH = struct.Struct("<i")


def write_embeddings(stem: str | Path, utterances: Sequence[str], vectors: Iterable[np.ndarray]) -> Path:
    """Write <stem>.ark and <stem>.scp (float32 vectors) and return the scp's path.

    The scp names the ark by its absolute path, as Kaldi's tools expect. It is written last, and an older one
    is deleted first, so that an scp never points into an ark it was not written with.

    Args:
        utterances: ids without spaces, no two alike.
        vectors: of each, (embedding_dim,); the rows of a matrix, or one after the other.

    Raises:
        UserError: an id that is listed twice, is empty or holds a space.
    """
    ark, scp = Path(f"{stem}.ark").absolute(), Path(f"{stem}.scp").absolute()
    for utterance in utterances:
        if len(utterance.split()) != 1:
            raise UserError(f"{scp}: the utterance id {utterance!r} is empty or holds a space; expected none in it")
    if len(set(utterances)) != len(utterances):
        twice = next(utterance for row, utterance in enumerate(utterances) if utterance in utterances[:row])
        raise UserError(f"{scp}: the embedding of {twice!r} is listed twice; keep one embedding per utterance")
    lines = []
    scp.unlink(missing_ok=True)
    with atomic_write(ark, "wb") as stream:
        for utterance, vector in zip(utterances, vectors, strict=True):
            stream.write(f"{utterance} ".encode())
            lines.append(f"{utterance} {ark}:{stream.tell()}\n")
            kaldiio.save_mat(stream, vector.astype(np.float32))
    with atomic_write(scp) as stream:
        stream.writelines(lines)
    return scp


def read_embeddings(scp: str | Path) -> EmbeddingTable:
    """Read all embeddings that an scp lists, in its order.

    Nothing is executed: a piped command, or an ark entry that holds a pickle, is refused.

    Raises:
        UserError: missing or malformed file, vectors of different sizes, an embedding that is listed twice, is zero or
            not finite; names file and line, or file and utterance.
    """
    return next(embedding_parts(scp, sys.maxsize))


def embedding_parts(scp: str | Path, size: int) -> Iterator[EmbeddingTable]:
    """As :func:`read_embeddings`, so many at a time; an embedding that is listed again in another part is not seen."""
    path = Path(scp)
    require_scp(path)
    utterances: list[str] = []
    vectors: list[np.ndarray] = []
    with _Arks() as arks:
        for utterance, vector in _vectors(path, arks):
            if len(utterances) == size:
                yield _table(path, utterances, vectors)
                utterances, vectors = [], []
            utterances.append(utterance)
            vectors.append(vector)
        if not vectors:
            raise UserError(f"{path}: lists no embedding; extract some with `svt embed`")
        yield _table(path, utterances, vectors)


def require_scp(scp: str | Path) -> None:
    """Refuse a list of embeddings that is not there."""
    if not is_regular(scp):
        raise UserError(f"{scp}: there is no such file; expected the scp that `svt embed` wrote")


def _table(path: Path, utterances: list[str], vectors: list[np.ndarray]) -> EmbeddingTable:
    try:
        return EmbeddingTable(utterances, np.concatenate(vectors).reshape(len(vectors), -1))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _vectors(path: Path, arks: _Arks) -> Iterator[tuple[str, np.ndarray]]:
    shape: tuple[int, ...] | None = None
    with path.open(encoding="utf-8", errors="backslashreplace") as lines:
        for number, line in enumerate(lines, start=1):
            name, _, location = line.strip().partition(" ")
            ark, _, offset = location.strip().rpartition(":")
            if not ark or not (offset.isascii() and offset.isdigit()):
                raise UserError(f"{path}:{number}: found {line.strip()!r}, expected `utterance file.ark:offset`")
            try:
                vector = arks.read(ark, int(offset))
            except Exception as error:  # kaldiio has no exception of its own
                raise UserError(
                    f"{path}:{number}: {location} cannot be read ({error}); extract the embeddings again"
                ) from error
            if vector.ndim != 1 or vector.shape != (shape or vector.shape):
                raise UserError(
                    f"{path}:{number}: {name!r} has shape {vector.shape}, expected a vector like the others; "
                    "extract all embeddings with one model"
                )
            shape = vector.shape
            yield name, vector


class _Arks:
    """Ark files, each opened and mapped once however many vectors are read from it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._opened: dict[str, tuple[BinaryIO, mmap.mmap]] = {}

    def __enter__(self) -> _Arks:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.clear()
        self._stack.close()

    def read(self, ark: str, offset: int) -> np.ndarray:
        """The vector at an offset; one of float32 in Kaldi's binary form without a copy.

        Raises: OSError, ValueError and what kaldiio raises.
        """
        if ark not in self._opened:
            check_regular(ark)
            opened = self._stack.enter_context(Path(ark).open("rb"))  # noqa: SIM115 - is in a context, ours
            self._opened[ark] = opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        stream, content = self._opened[ark]
        begin = offset + len(_FLOAT_VECTOR) + _LENGTH.size
        if content[offset : offset + len(_FLOAT_VECTOR)] == _FLOAT_VECTOR and begin <= len(content):
            (length,) = _LENGTH.unpack_from(content, begin - _LENGTH.size)
            if 0 < length <= (len(content) - begin) // 4:
                return np.frombuffer(content, "<f4", length, begin)
        return _read_vector(stream, offset)


def _read_vector(stream: BinaryIO, offset: int) -> np.ndarray:
    """The array at an offset. kaldiio would unpickle or decode audio where the ark says so: neither is an embedding."""
    stream.seek(offset)
    head = stream.read(2)
    if head != _BINARY and not head.strip().startswith(_TEXT):
        raise ValueError(f"found {head!r} there, expected a vector in Kaldi's binary or text form")
    stream.seek(offset)
    return np.asarray(read_kaldi(stream))
