"""Text of columns, as lists of trials and scores are: millions of lines taken apart at once, in arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

BLANK, NEWLINE = 0x20, 0x0A

LONGEST = 128
"""Bytes of a field that is compared in arrays; longer ones are compared one by one."""

ROUNDS = 8
"""Attempts to part fields that share a slot of the hash table: two suffice, but for fields made to collide."""

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: D. E. Knuth, The Art of Computer Programming 3, section 6.4, multiplicative hashing."""

DIGITS = 15
"""Digits of a decimal that are an integer of float64 exactly; so is a power of ten up to 22, and their quotient is
rounded once, as float() rounds (W. D. Clinger, "How to read floating point numbers accurately", 1990)."""


class Columns:
    """A text of lines with the same number of fields, found but not yet decoded.

    Args:
        content: the text, ASCII, the last line ended.
        begins, lengths: place and bytes of each field, int64, shape (lines, fields).
    """

    def __init__(self, content: bytes, begins: np.ndarray, lengths: np.ndarray) -> None:
        self._content, self._begins, self._lengths = content, begins, lengths

    def __len__(self) -> int:
        return len(self._begins)

    def strings(self, column: int) -> list[str]:
        """The fields of a column, a string each."""
        return self._decode(self._begins[:, column], self._lengths[:, column])

    def distinct(self, *columns: int) -> tuple[list[str], list[np.ndarray]]:
        """The different fields of some columns, in the order in which they appear in one column after the other.

        Returns:
            the fields, and for each column their numbers, from 0; int64, shape (lines,).
        """
        begins = np.concatenate([self._begins[:, column] for column in columns])
        lengths = np.concatenate([self._lengths[:, column] for column in columns])
        first = self._first_equal(begins, lengths)
        if first is None:
            fields = list(itertools.chain.from_iterable(map(self.strings, columns)))
            number = {field: place for place, field in enumerate(dict.fromkeys(fields))}
            names, numbers = list(number), np.fromiter(map(number.__getitem__, fields), np.int64, len(fields))
        else:
            is_first = first == np.arange(len(first))
            names = self._decode(begins[is_first], lengths[is_first])
            numbers = (np.cumsum(is_first) - 1)[first]
        return names, np.split(numbers, len(columns))

    def places(self, column: int, words: Sequence[str]) -> np.ndarray | None:
        """Place of each field of a column in a list of words, int64, shape (lines,); None where one is another word."""
        begins, lengths = self._begins[:, column], self._lengths[:, column]
        if not np.isin(lengths, [len(word) for word in words]).all():
            return None
        found = np.full(len(self), -1)
        fields = self._words(begins, lengths)
        for place, word in enumerate(words):
            if len(word) <= 8 * len(fields):
                wanted = np.frombuffer(word.encode().ljust(8 * len(fields), b"\0"), np.uint64)
                found[(fields == wanted[:, None]).all(axis=0)] = place
        return None if (found < 0).any() else found

    def numbers(self, column: int) -> np.ndarray:
        """The fields of a column as float64, rounded as float() rounds them; shape (lines,).

        Raises:
            ValueError: one is no number.
        """
        found = self._decimals(self._begins[:, column], self._lengths[:, column])
        if found is None:
            found = np.fromiter(map(float, self.strings(column)), np.float64, len(self))
        return found

    def _decode(self, begins: np.ndarray, lengths: np.ndarray) -> list[str]:
        """The text of fields, from their bytes side by side: zeros, which no field holds, fill them up to one width."""
        if lengths.max() > LONGEST:
            text = self._content.decode("ascii")
            return [text[begin:end] for begin, end in zip(begins.tolist(), (begins + lengths).tolist(), strict=True)]
        lines = np.full((len(begins), lengths.max() + 1), NEWLINE, np.uint8)
        lines[:, :-1] = padded_fields(self._content, begins, lengths)[:, : lengths.max()]
        return lines.tobytes().translate(None, b"\0").decode("ascii").split("\n")[:-1]

    def _first_equal(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
        """Of each field, the first that is equal to it, found by a hash table and compared; None where that fails."""
        if lengths.max() > LONGEST:
            return None
        words = self._words(begins, lengths)
        hashed = lengths.astype(np.uint64)
        for word in words:
            hashed ^= word
            hashed *= MULTIPLIER
            hashed ^= hashed >> np.uint64(32)
        first = np.empty(len(begins), np.int64)
        rows = np.arange(len(begins))
        bits = (2 * len(begins)).bit_length()
        slots = np.empty(1 << bits, np.int32 if len(begins) < 1 << 31 else np.int64)
        for _ in range(ROUNDS):
            hashed *= MULTIPLIER
            slot = (hashed >> np.uint64(64 - bits)).view(np.int64)
            slots[slot[::-1]] = rows[::-1]  # of rows that share a slot the first is written last, and stays
            found = slots[slot].astype(np.int64)
            same = lengths[found] == lengths[rows]
            for word in words:
                same &= word[found] == word[rows]
            if same.all():
                first[rows] = found
                return first
            first[rows[same]] = found[same]
            rows, hashed = rows[~same], hashed[~same]
        return None

    def _words(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The bytes of each field, zeros behind, as uint64 of shape (words of the longest, fields)."""
        return np.ascontiguousarray(padded_fields(self._content, begins, lengths).view(np.uint64).T)

    def _decimals(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
        """Fields such as -0.123456, all with as many digits behind the point; None where one is not so."""
        signs = np.frombuffer(self._content, np.uint8)
        _, _, behind = self._content[begins[0] : begins[0] + lengths[0]].partition(b".")
        negative = signs[begins] == ord("-")
        lengths = lengths - negative
        last = begins + negative + lengths - 1
        if not behind or lengths.min() < len(behind) + 2 or lengths.max() > DIGITS + 1:
            return None
        if not (signs[last - len(behind)] == ord(".")).all():
            return None
        whole = np.zeros(len(begins), np.int64)
        for place in range(int(lengths.max()) - 1):
            distance = place + (place >= len(behind))
            digits = signs[last - distance] - np.uint8(ord("0"))
            digits[distance >= lengths] = 0
            if digits.max() > 9:
                return None
            whole += digits * np.int64(10**place)
        values = whole / 10.0 ** len(behind)
        return np.where(negative, -values, values)


def padded_fields(content: bytes, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The bytes of fields side by side, zeros behind.

    Args:
        content: what they are part of.
        begins, lengths: place and bytes of each, int64, shape (fields,).

    Returns:
        uint8, shape (fields, bytes of the longest, rounded up to eight).
    """
    size = 8 * (-(-int(lengths.max()) // 8))
    content = content.ljust(size)
    final = len(content) - size  # a field behind it has fewer bytes to the end of the text
    windows = np.ndarray((final + 1,), f"V{size}", content, strides=(1,))
    words = windows[np.minimum(begins, final)].view(np.uint64).reshape(-1, size // 8)
    for row in np.flatnonzero(begins > final).tolist():
        words[row] = np.frombuffer(content[begins[row] :].ljust(size), np.uint64)
    kept = np.where(np.arange(size) < np.arange(lengths.max() + 1)[:, None], np.uint8(255), np.uint8(0))
    words &= kept.view(np.uint64)[lengths if lengths.min() < lengths.max() else lengths[:1]]
    return words.view(np.uint8)


def read_columns(content: bytes, count: int) -> Columns | None:
    """The columns of a text of plain lines, each of ``count`` fields parted by one blank.

    What is anything else (another number of fields, two blanks, tabs, empty lines, letters beyond ASCII) is left to a
    reader that goes line by line and can say what is wrong: some ten times slower.

    Returns:
        None where a line is not so.
    """
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n")
    if not content.isascii() or not content:
        return None
    if not content.endswith(b"\n"):
        content += b"\n"
    signs = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(signs <= BLANK)  # of the fields
    if len(ends) % count:
        return None
    begins = np.append(0, ends[:-1] + 1)
    lengths = ends - begins
    lines = signs[ends].reshape(-1, count)
    if not (lengths.min() > 0 and (lines[:, :-1] == BLANK).all() and (lines[:, -1] == NEWLINE).all()):
        return None
    return Columns(content, begins.reshape(-1, count), lengths.reshape(-1, count))
