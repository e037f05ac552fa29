"""Columns of long text tables as arrays: a million rows are one block of bytes and two arrays of positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from svtoolkit.system.regular_file import is_regular

NEWLINE, SPACE, LAST_PRINTABLE = 0x0A, 0x20, 0x7E

BLOCK_BYTES = 1 << 24
"""Searched at a time."""

BLOCK_ROWS = 1 << 13
"""Rows compared at a time."""


@dataclass(frozen=True)
class TextColumn(Sequence[str]):
    """Strings, each a stretch of one block of UTF-8.

    Attributes:
        text: the block, uint8, shape (bytes,).
        starts, ends: of every string, int64, shape (rows,).
    """

    text: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, strings: Iterable[str]) -> TextColumn:
        encoded = [string.encode("utf-8") for string in strings]
        ends = np.cumsum([len(string) for string in encoded], dtype=np.int64)
        starts = np.concatenate([np.zeros(min(1, len(ends)), dtype=np.int64), ends[:-1]])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> TextColumn: ...
    def __getitem__(self, row: int | slice) -> str | TextColumn:
        if isinstance(row, slice):
            return TextColumn(self.text, self.starts[row], self.ends[row])
        return self.text[self.starts[row] : self.ends[row]].tobytes().decode("utf-8")

    def take(self, rows: np.ndarray) -> TextColumn:
        """The rows asked for, in that order; the text is shared."""
        return TextColumn(self.text, self.starts[rows], self.ends[rows])

    def padded(self) -> np.ndarray:
        """The strings as bytes as wide as the longest, dtype S, shape (rows,): they compare as in C locale."""
        lengths = self.ends - self.starts
        columns = np.arange(max(1, int(lengths.max(initial=0))))
        padded = np.empty((len(self), len(columns)), dtype=np.uint8)
        last = max(0, len(self.text) - 1)
        for begin in range(0, len(self), BLOCK_ROWS):
            rows = slice(begin, begin + BLOCK_ROWS)
            position = np.minimum(self.starts[rows, None] + columns, last)
            padded[rows] = np.where(columns < lengths[rows, None], self.text[position] if len(self.text) else 0, 0)
        return padded.view(f"S{len(columns)}")[:, 0]


def read_regular_table(path: Path, columns: int | None = None) -> tuple[TextColumn, TextColumn] | None:
    """Keys and values of a table that is regular: sorted, one separator, no duplicates.

    That is: printable ASCII, every line `key value` with one space after the key, none at either end, keys in C-locale
    order and unique, a line end after the last. Any other table is left to ``svtoolkit.data.tables``, which says what
    is wrong with it.

    Args:
        path: the file.
        columns: of every line, key included: 2, or None for a value that may have spaces in it.

    Returns:
        (keys, values), or None where the table is missing or not regular.
    """
    if not is_regular(path):
        return None
    text = np.fromfile(path, dtype=np.uint8)
    if not len(text) or text[-1] != NEWLINE or not _is_printable(text):
        return None
    line_ends = _positions(text, NEWLINE)
    starts = np.concatenate([[0], line_ends[:-1] + 1])
    spaces = _positions(text, SPACE)
    which = np.searchsorted(spaces, starts)
    if not len(spaces) or which[-1] == len(spaces) or (columns == 2 and len(spaces) != len(starts)):
        return None
    gaps = spaces[which]
    # One space that is neither first nor last, and a value that neither begins nor ends with another.
    if not ((starts < gaps) & (gaps + 1 < line_ends)).all():
        return None
    if (text[gaps + 1] == SPACE).any() or (text[line_ends - 1] == SPACE).any():
        return None
    keys = TextColumn(text, starts, gaps)
    return (keys, TextColumn(text, gaps + 1, line_ends)) if is_increasing(keys) else None


def split_words(path: Path) -> TextColumn | None:
    """All words of a file of printable ASCII, across its lines; None if it has other characters or spacing.

    Words have one space or line end after them, the last one a line end.
    """
    text = np.fromfile(path, dtype=np.uint8)
    if not len(text) or text[-1] != NEWLINE or not _is_printable(text):
        return None
    ends = np.sort(np.concatenate([_positions(text, SPACE), _positions(text, NEWLINE)]))
    starts = np.concatenate([[0], ends[:-1] + 1])
    return TextColumn(text, starts, ends) if (starts < ends).all() else None


def is_increasing(column: TextColumn) -> bool:
    """Whether every string comes after the one before it in C-locale order."""
    for begin in range(0, len(column) - 1, BLOCK_ROWS):
        block = column[begin : begin + BLOCK_ROWS + 1].padded()
        if not (block[1:] > block[:-1]).all():
            return False
    return True


def are_equal(first: TextColumn, second: TextColumn) -> bool:
    """Whether two columns hold the same strings."""
    if len(first) != len(second) or ((first.ends - first.starts) != (second.ends - second.starts)).any():
        return False
    for begin in range(0, len(first), BLOCK_ROWS):
        rows = slice(begin, begin + BLOCK_ROWS)
        if (first[rows].padded() != second[rows].padded()).any():
            return False
    return True


def _is_printable(text: np.ndarray) -> bool:
    for begin in range(0, len(text), BLOCK_BYTES):
        block = text[begin : begin + BLOCK_BYTES]
        if (((block < SPACE) & (block != NEWLINE)) | (block > LAST_PRINTABLE)).any():
            return False
    return True


def _positions(text: np.ndarray, byte: int) -> np.ndarray:
    blocks = range(0, len(text), BLOCK_BYTES)
    return np.concatenate([np.flatnonzero(text[begin : begin + BLOCK_BYTES] == byte) + begin for begin in blocks])
