"""Columns taken apart in arrays are those that Python's own split, dict and float give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.system import columns as columns_module
from svtoolkit.system.columns import Columns, read_columns

FIELD = st.text("ab\x7f", min_size=1, max_size=20) | st.sampled_from(["a" * 8, "a" * 9, "a" * 16, "a" * 200])


def read(rows: list[tuple[str, ...]]) -> Columns:
    columns = read_columns("".join(" ".join(fields) + "\n" for fields in rows).encode(), len(rows[0]))
    assert columns is not None
    return columns


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=30))
def test_different_fields_are_numbered_in_the_order_in_which_they_appear(rows: list[tuple[str, str]]) -> None:
    columns = read(rows)
    first, second = (list(column) for column in zip(*rows, strict=True))
    assert (columns.strings(0), columns.strings(1)) == (first, second)
    names, [in_first, in_second] = columns.distinct(0, 1)
    assert names == list(dict.fromkeys(first + second))
    assert [names[number] for number in in_first.tolist()] == first
    assert [names[number] for number in in_second.tolist()] == second


@pytest.mark.parametrize("multiplier", [0, 1])
def test_fields_that_share_a_slot_of_the_hash_table_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, multiplier: int
) -> None:
    monkeypatch.setattr(columns_module, "MULTIPLIER", np.uint64(multiplier))
    names, [numbers] = read([(f"id{number % 70}",) for number in range(300)]).distinct(0)
    assert names == [f"id{number}" for number in range(70)]
    np.testing.assert_array_equal(numbers, np.arange(300) % 70)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.decimals(-(10**9), 10**9, places=6), min_size=1, max_size=5)
    | st.lists(st.floats(), min_size=1, max_size=5)
    | st.lists(st.sampled_from(["0.5", "-0.0", "1e3", ".5", "5.", "-7", "+0.25", "12345678901234567.5"]), min_size=1)
)
def test_numbers_are_those_of_float_bit_for_bit(fields: list[object]) -> None:
    found = read([(str(field),) for field in fields]).numbers(0)
    expected = np.array([float(str(field)) for field in fields])
    np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))


@pytest.mark.parametrize("fields", [["0.5", "0,5"], ["0.5", "0.x"], ["0.5", "--0.5"], ["-", "0.5"], ["0.5", "0.-5"]])
def test_what_is_no_number_is_refused(fields: list[str]) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        read([(field,) for field in fields]).numbers(0)


def test_places_in_a_list_of_words() -> None:
    columns = read([("target",), ("nontarget",), ("target",)])
    places = columns.places(0, ["1", "0", "nontarget", "target"])
    assert places is not None
    assert places.tolist() == [3, 2, 3]
    assert columns.places(0, ["target", "monotarget"]) is None
    assert columns.places(0, ["target", "Nontarget"]) is None


@pytest.mark.parametrize("text", ["", "\n", "a\n", "a b c\n", "a  b\n", " a b\n", "a\tb\n", "a b\n\nc d\n", "a é\n"])
def test_other_lines_are_left_to_another_reader(text: str) -> None:
    assert read_columns(text.encode(), 2) is None
