from __future__ import annotations

import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.audio.shards.location import ShardLocation, format_location, is_there, is_url, parse_location

SIZES = st.integers(0, 10**19 - 1)
FOLDERS = st.sampled_from(
    ["", "/data/", "C:/data/", "C:\\data\\", "a b/", "https://host:8080/x/", "s3://bucket/", "..//"]
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(FOLDERS, NAMES, SIZES, SIZES)
def test_what_is_written_is_read(folder, name, offset, size):
    location = ShardLocation(f"{folder}x{name}.tar", offset, size)
    assert parse_location(format_location(location)) == location


@given(st.text(string.printable))
def test_a_text_is_a_location_or_it_is_none(text):
    for candidate in (text, f"a.tar:{text}", f"{text}.tar:1:2"):
        location = parse_location(candidate)
        # A scheme with one slash is what pathlib leaves of a URL.
        assert location is None or format_location(location) == candidate or is_url(location.archive)


@pytest.mark.parametrize(
    ("text", "archive"),
    [
        ("shard-000000.tar:512:1234", "shard-000000.tar"),
        ("/data/a b/shard.tar:512:1234", "/data/a b/shard.tar"),
        (r"C:\data\shard.tar:512:1234", r"C:\data\shard.tar"),
        ("C:/data/shard.tar:512:1234", "C:/data/shard.tar"),
        ("https://host/x.tar:512:1234", "https://host/x.tar"),
        ("http://host:8080/x.tar:512:1234", "http://host:8080/x.tar"),
        ("s3://bucket/key/x.tar:512:1234", "s3://bucket/key/x.tar"),
        ("x.tar:1:2.tar:512:1234", "x.tar:1:2.tar"),
    ],
)
def test_forms(text, archive):
    assert parse_location(text) == ShardLocation(archive, 512, 1234)
    assert format_location(ShardLocation(archive, 512, 1234)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "a.wav", "/data/a.tar", "a.tar:512", "a.tar:512:", "a.tar::1", "a.tar:-1:2", "a.tar:01:2", "a.tar:1:2 ",
        "a.tar:1:2\n", "a.tar:1:2:3", ".tar:1:2", "a.tar.gz:1:2", "a.tar:1:٢", r"C:\a.wav", "https://host:80/a.wav",
        "a.tar:1:20000000000000000000", "cat a.tar:1:2 |",
    ],
)  # fmt: skip
def test_an_ordinary_path(text):
    assert parse_location(text) is None
    assert parse_location(Path(text)) is None


@pytest.mark.parametrize(
    "text",
    ["https://host/a/x.tar:512:1234", "s3://bucket/x.tar:0:1", "memory://a/x.tar:0:1", "file:///data/x.tar:0:1"],
)
def test_pathlib_takes_a_slash_of_a_url_which_is_put_back(text):
    if os.name == "posix":
        assert str(Path(text)) != text
    assert parse_location(Path(text)) == parse_location(text)
    assert parse_location(text).is_remote


@pytest.mark.parametrize(
    ("archive", "base", "expected"),
    [
        ("x.tar", "/data", "/data/x.tar"),
        ("a/x.tar", Path("data"), "data/a/x.tar"),
        ("x.tar", "https://host/a/", "https://host/a/x.tar"),
        ("x.tar", "s3://bucket", "s3://bucket/x.tar"),
        ("x.tar", Path("s3://bucket/a"), "s3://bucket/a/x.tar"),
        ("/other/x.tar", "/data", "/other/x.tar"),
        ("https://host/x.tar", "/data", "https://host/x.tar"),
        ("/other/x.tar", "s3://bucket", "/other/x.tar"),
    ],
)
def test_relative_archives(archive, base, expected):
    assert ShardLocation(archive, 1, 2).below(base) == ShardLocation(expected, 1, 2)


def test_what_is_there(tmp_path):
    (tmp_path / "a.tar").touch()
    assert is_there(tmp_path / "a.tar")
    assert is_there(f"{tmp_path}/a.tar:512:1234")
    assert is_there(Path("https://host/a.tar:512:1234"))
    assert not is_there(tmp_path / "b.tar")
    assert not is_there(f"{tmp_path}/b.tar:512:1234")


@pytest.mark.parametrize(
    "location",
    [
        ShardLocation("a.wav", 1, 2),
        ShardLocation("a.tar", -1, 2),
        ShardLocation("a.tar", 1, -2),
        ShardLocation("", 1, 2),
    ],
)
def test_what_could_not_be_read_is_not_written(location):
    with pytest.raises(ValueError, match=r"cannot be written as `<archive>\.tar:<offset>:<size>`"):
        format_location(location)
