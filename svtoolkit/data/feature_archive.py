"""Feature matrices in Kaldi archives: written by kaldiio, read by rows, so that a crop costs its own frames alone.

Formats: Kaldi's matrices of float32 (FM) and float64 (DM), its compressed ones (CM, one byte a value on a scale for
each column; CM2 and CM3, two bytes and one on a scale for all), and, since Kaldi has no half precision, NumPy's array
of float16, as kaldiio stores it (NPY).
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import kaldiio
import numpy as np
from kaldiio.compression_header import GlobalHeader, PerColHeader, kAutomaticMethod

from svtoolkit.errors import UserError
from svtoolkit.system.positioned_read import open_binary, read_at
from svtoolkit.system.regular_file import check_regular

FORMATS = ("float32", "float16", "compressed")

HEADER_BYTES = 256
"""Enough for the header of any matrix."""

READ_WHOLE = 1 << 19
"""Bytes up to which a matrix that lies column by column is read in one piece; of a longer one, each column's rows."""

_LOCATION = re.compile(r"(.+):(\d+)", re.DOTALL)
_REMEDY = "compute the features again with `svt features`, or copy the whole directory again"


def write_features(stream: IO[bytes], utterance_id: str, frames: np.ndarray, form: str) -> int:
    """Append an utterance to an archive; returns the offset that feats.scp lists.

    Args:
        stream: of the archive.
        utterance_id: without white space.
        frames: float32, (frames, bins).
        form: float32, float16 or compressed (Kaldi's choice: a byte a value, two where there are 8 frames or fewer).
    """
    offset: int = stream.tell() + len(f"{utterance_id} ".encode())
    matrix = frames.astype(np.float16) if form == "float16" else frames
    kaldiio.save_ark(
        stream,
        {utterance_id: matrix},
        compression_method=kAutomaticMethod if form == "compressed" else None,
        write_function="numpy" if form == "float16" else None,
    )
    return offset


def archive_of(location: str | os.PathLike[str]) -> Path | None:
    """The archive of an entry of feats.scp; None for another form of location."""
    found = _LOCATION.fullmatch(os.fspath(location))
    return found and Path(found[1])


def read_features(location: str | os.PathLike[str], bins: int) -> np.ndarray:
    """All features of one utterance: float32, (frames, bins).

    Raises:
        UserError: as ``open_features``, and for features that are not finite.
    """
    with open_features(location, bins) as matrix:
        frames = matrix.read(0, matrix.rows)
        check_finite(location, frames)
    return frames


def check_finite(location: str | os.PathLike[str], frames: np.ndarray) -> None:
    """Refuse frames of an utterance that are not finite, as ``svt features`` never writes them.

    Raises:
        UserError: there are such.
    """
    if not np.isfinite(frames).all():
        raise UserError(f"{os.fspath(location)}: holds features that are NaN or infinite; {_REMEDY}")


@contextmanager
def open_features(location: str | os.PathLike[str], bins: int) -> Iterator[StoredMatrix]:
    """Open the features of one utterance.

    Nothing is executed, whatever the archive holds.

    Args:
        location: `archive:offset`, as feats.scp lists it.
        bins: columns that it must have.

    Raises:
        UserError: another form of location, an archive that is missing, cut off or no regular file, something else at
            the offset.
    """
    found = _LOCATION.fullmatch(os.fspath(location))
    if found is None:
        raise UserError(f"feats.scp: found {os.fspath(location)!r}, expected `archive:offset`; {_REMEDY}")
    check_regular(found[1])
    try:
        descriptor = open_binary(found[1])
    except OSError as error:
        raise UserError(f"{found[1]}: the archive cannot be opened ({error.strerror}); {_REMEDY}") from error
    try:
        matrix = StoredMatrix(descriptor, int(found[2]))
        if matrix.columns != bins:
            raise ValueError(f"{matrix.columns} bins instead of {bins}")
        yield matrix
    except (OSError, ValueError, struct.error) as error:
        raise UserError(f"{location}: no features can be read there ({error}); {_REMEDY}") from error
    finally:
        os.close(descriptor)


class StoredMatrix:
    """A matrix in an open archive.

    Attributes:
        rows: frames.
        columns: bins.

    Raises:
        ValueError: there is no matrix at the offset.
    """

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor = descriptor
        head = read_at(descriptor, HEADER_BYTES, offset)
        self._scale: GlobalHeader | None = None
        self._column_scales: PerColHeader | None = None
        kind = head[2:].partition(b" ")[0]
        if head[:3] == b"NPY":
            begin = 4 + head[3]
            stream = io.BytesIO(head[begin:])
            np.lib.format.read_magic(stream)
            shape, by_columns, self._type = np.lib.format.read_array_header_1_0(stream)
            if len(shape) != 2 or by_columns or self._type.kind != "f":
                raise ValueError(f"an array of {self._type}, {shape}")
            self.rows, self.columns = shape
            begin += stream.tell()
        elif head[:2] == b"\0B" and kind in (b"FM", b"DM"):
            self._type = np.dtype("<f4" if kind == b"FM" else "<f8")
            self.rows, self.columns = struct.unpack_from("<xixi", head, 5)
            begin = 15
        elif head[:2] == b"\0B" and kind in (b"CM", b"CM2", b"CM3"):
            begin = 3 + len(kind)
            self._scale = GlobalHeader.read(io.BytesIO(head[begin:]), kind.decode())
            self._type = np.dtype("<u2" if kind == b"CM2" else "u1")
            self.rows, self.columns = self._scale.rows, self._scale.cols
            begin += 16
        else:
            raise ValueError(f"{head[:8]!r} is no matrix in Kaldi's binary form")
        if self.rows < 1 or self.columns < 1:
            raise ValueError(f"a matrix of {self.rows} x {self.columns}")
        self._begin = offset + begin
        if kind == b"CM":
            self._column_scales = PerColHeader.read(io.BytesIO(self._read(8 * self.columns, self._begin)), self._scale)
            self._begin += 8 * self.columns

    def read(self, first: int, count: int) -> np.ndarray:
        """Rows from ``first`` on: float32, (count, columns).

        Raises:
            ValueError: the matrix or the archive ends before them.
        """
        if not 0 <= first <= first + count <= self.rows:
            raise ValueError(f"rows {first} to {first + count} of {self.rows}")
        if self._column_scales is not None:
            return np.ascontiguousarray(self._column_scales.char_to_float(self._columns(first, count)).T, np.float32)
        row_bytes = self.columns * self._type.itemsize
        content = self._read(count * row_bytes, self._begin + first * row_bytes)
        values = np.frombuffer(content, self._type).reshape(count, self.columns)
        return values.astype(np.float32) if self._scale is None else self._scale.uint_to_float(values)

    def _columns(self, first: int, count: int) -> np.ndarray:
        """The bytes of those rows where the matrix lies column by column: (columns, count)."""
        if self.rows * self.columns <= READ_WHOLE:
            content = self._read((self.columns - 1) * self.rows + count, self._begin + first)
            return np.lib.stride_tricks.as_strided(
                np.frombuffer(content, np.uint8), (self.columns, count), (self.rows, 1)
            )
        begins = range(self._begin + first, self._begin + first + self.rows * self.columns, self.rows)
        content = b"".join(self._read(count, begin) for begin in begins)
        return np.frombuffer(content, np.uint8).reshape(self.columns, count)

    def _read(self, count: int, offset: int) -> bytes:
        content = read_at(self._descriptor, count, offset)
        while len(content) < count:
            piece = read_at(self._descriptor, count - len(content), offset + len(content))
            if not piece:
                raise ValueError(f"the archive ends {count - len(content)} bytes too early")
            content += piece
        return content
