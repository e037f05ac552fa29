"""Embeddings as Kaldi ark/scp, through kaldiio."""

from __future__ import annotations

import itertools
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
from svtoolkit.system.columns import read_columns
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
    scp.unlink(missing_ok=True)
    with atomic_write(scp) as listing, atomic_write(ark, "wb") as stream:  # the ark is there first
        for utterance, vector in zip(utterances, vectors, strict=True):
            stream.write(f"{utterance} ".encode())
            listing.write(f"{utterance} {ark}:{stream.tell()}\n")
            kaldiio.save_mat(stream, vector.astype(np.float32))
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
    number, shape = 1, None
    with _Arks() as arks, path.open("rb") as stream:
        while lines := list(itertools.islice(stream, size)):
            utterances, matrix = _read_plain(lines, arks) or _read_by_line(path, number, lines, arks)
            if matrix.shape[1:] != (shape or matrix.shape[1:]):
                raise UserError(_other_shape(path, number, utterances[0], matrix.shape[1:]))
            number, shape = number + len(lines), matrix.shape[1:]
            yield _table(path, utterances, matrix)
    if shape is None:
        raise UserError(f"{path}: lists no embedding; extract some with `svt embed`")


def require_scp(scp: str | Path) -> None:
    """Refuse a list of embeddings that is not there."""
    if not is_regular(scp):
        raise UserError(f"{scp}: there is no such file; expected the scp that `svt embed` wrote")


def _table(path: Path, utterances: list[str], matrix: np.ndarray) -> EmbeddingTable:
    try:
        return EmbeddingTable(utterances, matrix)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _read_plain(lines: list[bytes], opened: _Arks) -> tuple[list[str], np.ndarray] | None:
    """Utterances and embeddings, (utterances, dimension), of float32 vectors of one length, in Kaldi's binary form.

    None where a line or a vector is anything else: the reader that goes line by line can say what is wrong.
    """
    columns = read_columns(b"".join(lines), 2)
    if columns is None:
        return None
    arks, _, digits = zip(*[location.rpartition(":") for location in columns.strings(1)], strict=True)
    if not all(arks) or not all(map(str.isdigit, digits)):
        return None
    try:
        offsets = np.array(list(map(int, digits)), dtype=np.int64)
        if len(set(arks)) == 1:
            matrix = opened.read_all(arks[0], offsets)
            return None if matrix is None else (columns.strings(0), matrix)
        parts = _rows_by_ark(arks)
        found = [opened.read_all(ark, offsets[rows]) for ark, rows in parts.items()]
    except (OSError, ValueError, OverflowError, UserError):
        return None
    vectors = [each for each in found if each is not None]
    if len(vectors) < len(found) or len({each.shape[1] for each in vectors}) > 1:
        return None
    matrix = np.empty((len(offsets), vectors[0].shape[1]), np.float32)
    for rows, each in zip(parts.values(), vectors, strict=True):
        matrix[rows] = each
    return columns.strings(0), matrix


def _rows_by_ark(arks: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, ark in enumerate(arks):
        rows.setdefault(ark, []).append(row)
    return rows


def _read_by_line(path: Path, first: int, lines: list[bytes], arks: _Arks) -> tuple[list[str], np.ndarray]:
    """As :func:`_read_plain`, of any lines and vectors; ``first`` is the number of the first line."""
    utterances: list[str] = []
    vectors: list[np.ndarray] = []
    for number, line in enumerate(lines, start=first):
        text = line.decode("utf-8", "backslashreplace").strip()
        name, _, location = text.partition(" ")
        ark, _, offset = location.strip().rpartition(":")
        if not ark or not (offset.isascii() and offset.isdigit()):
            raise UserError(f"{path}:{number}: found {text!r}, expected `utterance file.ark:offset`")
        try:
            vector = arks.read(ark, int(offset))
        except Exception as error:  # kaldiio has no exception of its own
            raise UserError(
                f"{path}:{number}: {location} cannot be read ({error}); extract the embeddings again"
            ) from error
        if vector.ndim != 1 or vector.shape != (vectors or [vector])[0].shape:
            raise UserError(_other_shape(path, number, name, vector.shape))
        utterances.append(name)
        vectors.append(vector)
    return utterances, np.concatenate(vectors).reshape(len(vectors), -1)


def _other_shape(path: Path, number: int, name: str, shape: tuple[int, ...]) -> str:
    return (
        f"{path}:{number}: {name!r} has shape {shape}, expected a vector like the others; "
        "extract all embeddings with one model"
    )


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
        stream, content = self._open(ark)
        begin = offset + len(_FLOAT_VECTOR) + _LENGTH.size
        if content[offset : offset + len(_FLOAT_VECTOR)] == _FLOAT_VECTOR and begin <= len(content):
            (length,) = _LENGTH.unpack_from(content, begin - _LENGTH.size)
            if 0 < length <= (len(content) - begin) // 4:
                return np.frombuffer(content, "<f4", length, begin)
        return _read_vector(stream, offset)

    def read_all(self, ark: str, offsets: np.ndarray) -> np.ndarray | None:
        """The vectors at some offsets, float32 of shape (offsets, dimension); None unless all are plain and as long.

        Raises: OSError, ValueError, UserError.
        """
        _, content = self._open(ark)
        head = content[int(offsets[0]) : int(offsets[0]) + len(_FLOAT_VECTOR) + _LENGTH.size]
        if not head.startswith(_FLOAT_VECTOR) or len(head) < len(_FLOAT_VECTOR) + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(head, len(_FLOAT_VECTOR))
        if not 0 < length <= (len(content) - len(head) - int(offsets.max())) // 4:
            return None
        if not (_bytes_at(content, offsets, len(head)) == np.void(head)).all():
            return None
        return _bytes_at(content, offsets + len(head), 4 * length).view("<f4").reshape(-1, length)

    def _open(self, ark: str) -> tuple[BinaryIO, mmap.mmap]:
        if ark not in self._opened:
            check_regular(ark)
            opened = self._stack.enter_context(Path(ark).open("rb"))  # noqa: SIM115 - is in a context, ours
            self._opened[ark] = opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        return self._opened[ark]


def _bytes_at(content: mmap.mmap, offsets: np.ndarray, size: int) -> np.ndarray:
    """So many bytes at each offset, a copy."""
    return np.ndarray((len(content) - size + 1,), f"V{size}", content, strides=(1,))[offsets]


def _read_vector(stream: BinaryIO, offset: int) -> np.ndarray:
    """The array at an offset. kaldiio would unpickle or decode audio where the ark says so: neither is an embedding."""
    stream.seek(offset)
    head = stream.read(2)
    if head != _BINARY and not head.strip().startswith(_TEXT):
        raise ValueError(f"found {head!r} there, expected a vector in Kaldi's binary or text form")
    stream.seek(offset)
    return np.asarray(read_kaldi(stream))
