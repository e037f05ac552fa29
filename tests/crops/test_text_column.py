"""Columns of text as arrays: the strings that went in, C-locale order, and which tables are regular."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.crops import text_column
from svtoolkit.crops.text_column import TextColumn, are_equal, is_increasing, read_regular_table, split_words
from svtoolkit.data.tables import read_table

words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)
printable = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=9)


@given(st.lists(words))
def test_strings_come_back(strings):
    column = TextColumn.of(strings)
    assert list(column) == strings
    assert len(column) == len(strings)
    assert list(column[1:]) == strings[1:]
    assert list(column.take(np.arange(len(strings))[::-1])) == strings[::-1]
    assert list(pickle.loads(pickle.dumps(column))) == strings


@given(st.lists(words, min_size=1))
def test_padded_strings_are_their_bytes_and_compare_as_in_c_locale(strings):
    padded = TextColumn.of(strings).padded()
    assert padded.tolist() == [string.encode() for string in strings]
    order = sorted(range(len(strings)), key=lambda row: strings[row].encode())
    assert (padded[order[1:]] >= padded[order[:-1]]).all()


@given(st.lists(words), st.integers(1, 3))
def test_order_and_equality_do_not_depend_on_the_blocks(strings, rows):
    whole = text_column.BLOCK_ROWS
    text_column.BLOCK_ROWS = rows
    try:
        column, ordered = TextColumn.of(strings), TextColumn.of(sorted(set(strings)))
        assert is_increasing(ordered)
        assert is_increasing(column) == (strings == sorted(set(strings)))
        assert are_equal(column, TextColumn.of(list(strings)))
        assert are_equal(column, ordered) == (strings == sorted(set(strings)))
        assert not are_equal(column, TextColumn.of([*strings, "one more"]))
    finally:
        text_column.BLOCK_ROWS = whole


def test_a_string_that_begins_another_is_not_equal_to_it():
    assert not are_equal(TextColumn.of(["ab", "c"]), TextColumn.of(["a", "bc"]))
    assert not are_equal(TextColumn.of(["ab"]), TextColumn.of(["ac"]))


@given(st.dictionaries(printable, st.lists(printable, min_size=1, max_size=3), min_size=1, max_size=8))
def test_a_regular_table_is_read_as_the_careful_reader_does(tmp_path_factory, entries):
    path = tmp_path_factory.mktemp("table") / "wav.scp"
    path.write_bytes("".join(f"{key} {' '.join(entries[key])}\n" for key in sorted(entries)).encode())
    keys, values = read_regular_table(path)
    careful = read_table(path, [])
    assert list(keys) == list(careful)
    assert list(values) == [value for _, value in careful.values()]
    has_two_columns = all(len(value) == 1 for value in entries.values())
    assert (read_regular_table(path, columns=2) is not None) == has_two_columns


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a 1\nb 2",
        b"b 1\na 2\n",
        b"a 1\na 1\n",
        b"a 1\n\nb 2\n",
        b"a 1\nb\n",
        b"a\nb\n",
        b"a  1\n",
        b" a 1\n",
        b"a 1 \n",
        b"a \n",
        b"a\t1\n",
        b"a 1\r\n",
        b"a 1\0\n",
        b"\xef\xbb\xbfa 1\n",
        "ä 1\n".encode(),
        b"\n",
    ],
)
def test_any_other_table_is_left_to_the_careful_reader(tmp_path, content):
    (tmp_path / "utt2spk").write_bytes(content)
    assert read_regular_table(tmp_path / "utt2spk") is None


def test_a_missing_table_is_none(tmp_path):
    assert read_regular_table(tmp_path / "utt2spk") is None


def test_words_of_a_file_whatever_their_line(tmp_path):
    (tmp_path / "spk2utt").write_bytes(b"ann ann-1 ann-2\nbob bob-1\n")
    found = split_words(tmp_path / "spk2utt")
    assert list(found) == ["ann", "ann-1", "ann-2", "bob", "bob-1"]
    for content in (b"", b"ann ann-1", b"ann  ann-1\n", b"ann\tann-1\n", "änn ann-1\n".encode()):
        (tmp_path / "spk2utt").write_bytes(content)
        assert split_words(tmp_path / "spk2utt") is None
