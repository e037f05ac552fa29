"""YAML and JSON of bounded depth, and without aliases."""

from __future__ import annotations

import io

import pytest
import yaml
from hostile_files import ALIASES

from svtoolkit.system.plain_data import (
    DEEPEST,
    LARGEST_YAML,
    MalformedError,
    Tagged,
    check_yaml,
    parse_json,
    parse_tagged_yaml,
    read_text,
    read_yaml,
    write_yaml,
)


def as_yaml(tmp_path, text: str) -> object:
    (tmp_path / "a.yaml").write_text(text)
    check_yaml(tmp_path / "a.yaml")
    return read_yaml(tmp_path / "a.yaml")


def test_what_is_plain_is_read_as_by_others(tmp_path):
    text = "a: [1, 2.5, null, yes]\nb: {c: text, d: 2020-01-01}\ne: &anchor [x]\n"
    assert as_yaml(tmp_path, text) == yaml.safe_load(text)
    assert as_yaml(tmp_path, "") is None
    assert parse_json('{"a": [1, 2.5, null, true, "["]}') == {"a": [1, 2.5, None, True, "["]}


def test_as_deep_as_may_be_and_one_more(tmp_path):
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert parse_json(deep) == yaml.safe_load(deep)
    as_yaml(tmp_path, deep.replace("[]", ""))
    with pytest.raises(MalformedError, match=f"nested deeper than {DEEPEST} levels"):
        parse_json(f"[{deep}]")
    with pytest.raises(MalformedError, match=f"line 1 is nested deeper than {DEEPEST} levels"):
        as_yaml(tmp_path, f"[{deep}]")
    assert parse_json("[" + ",".join(["[]"] * 1000) + "]") == [[]] * 1000


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("a: 1\nb: &x [1]\nc: *x\n", r"found the alias \*x on line 3", 3),
        ("a: {b\n", "expected", 2),
        ("a: 2020-13-45\n", "month must be in 1..12", None),
        ("a: !!timestamp soon\n", "NoneType", None),
        ("a: !!python/object:os.system x\n", "could not determine a constructor", 1),
        ("a: " + "9" * 5000, "Exceeds the limit", None),
        ("a: \0", "special characters are not allowed", None),
    ],
)
def test_what_is_no_yaml(tmp_path, text, reason, line):
    with pytest.raises(MalformedError, match=reason) as caught:
        as_yaml(tmp_path, text)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "9" * 5000])
def test_what_is_no_json(text):
    with pytest.raises(MalformedError):
        parse_json(text)


def test_an_alias_of_what_is_flat_is_that_and_any_other_is_a_word():
    text = "a: &x 3\nb: &y [1, *x]\nc: &z !new:Class {d: *y}\ne: [*x, *y, *z, *no]\nf: &w [*w]\n"
    assert parse_tagged_yaml(text, aliases=True) == {
        "a": 3,
        "b": [1, 3],
        "c": Tagged("!new:Class", {"d": [1, 3]}),
        "e": [3, [1, 3], Tagged("*", "z"), Tagged("*", "no")],
        "f": [Tagged("*", "w")],
    }
    with pytest.raises(MalformedError, match=r"found the alias \*x on line 2"):
        parse_tagged_yaml(text)
    with pytest.raises(MalformedError, match="nested deeper"):
        parse_tagged_yaml("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), aliases=True)


def test_many_aliases_of_many_are_not_walked():
    assert len(repr(parse_tagged_yaml(ALIASES.decode(), aliases=True))) < 20 * len(ALIASES)


def test_long_files_are_refused_before_they_are_read(tmp_path):
    with (tmp_path / "a.yaml").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(MalformedError, match=f"it has {1 << 40} bytes, expected at most {LARGEST_YAML}"):
        read_yaml(tmp_path / "a.yaml")
    with pytest.raises(MalformedError, match="expected at most 9"):
        read_text(tmp_path / "a.yaml", most=9)


def test_no_aliases_are_written():
    shared, stream = [1], io.StringIO()
    write_yaml({"b": shared, "a": shared}, stream)
    assert stream.getvalue() == "b:\n- 1\na:\n- 1\n"
