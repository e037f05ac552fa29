"""Reading the history of a run that was written whole, torn, or edited."""

from __future__ import annotations

import json
import logging

import pytest

from svtoolkit.errors import UserError
from svtoolkit.runs.run_history import read_history

RECORDS = [
    {"kind": "step", "step": 1, "epoch": 1, "loss": 6.25, "note": "Grüße"},
    {"kind": "step", "step": 2, "epoch": 1, "loss": 6.0, "unknown": [1, None]},
    {"kind": "epoch", "step": 2, "epoch": 1, "validation_eer": 0.25},
]


def write_lines(path, *lines, end="\n"):
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines) + end.encode()
    )
    return path


def test_history_is_read_as_written(tmp_path):
    assert read_history(write_lines(tmp_path / "history.jsonl", *RECORDS)) == RECORDS
    assert read_history(write_lines(tmp_path / "whole_but_no_line_end.jsonl", *RECORDS, end="")) == RECORDS
    assert read_history(write_lines(tmp_path / "blank.jsonl", RECORDS[0], b"", RECORDS[1])) == RECORDS[:2]
    assert read_history(write_lines(tmp_path / "empty.jsonl", end="")) == []


@pytest.mark.parametrize(
    "torn", [b'{"kind": "step", "st', b'{"kind": "st\xc3', b'{"kind": "step", "note": "\xe2\x82', b"\x00\x00\x00\x00"]
)
def test_a_torn_last_line_is_left_out_and_said(tmp_path, caplog, torn):
    path = write_lines(tmp_path / "history.jsonl", {"kind": "step", "step": 1}, torn, end="")
    with caplog.at_level(logging.WARNING):
        assert read_history(path) == [{"kind": "step", "step": 1}]
    assert f"{path}:2: left out an unfinished last record" in caplog.text


def test_a_history_torn_at_any_byte_is_the_records_before(tmp_path):
    whole = b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in RECORDS)
    ends = [position for position in range(1, len(whole) + 1) if whole[position - 1 : position + 1] == b"}\n"]
    assert len(ends) == len(RECORDS)
    path = tmp_path / "history.jsonl"
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        # A line is whole with its closing brace, line end or not.
        whole_lines = [end for end in ends if end <= length]
        assert read_history(path) == RECORDS[: len(whole_lines)]


@pytest.mark.parametrize("line", [b'{"kind": "step", "st', b"[1, 2]", b'{"step": 1}', b'{"kind": 3}', b"\xff{}"])
def test_another_malformed_line_is_named_with_its_file(tmp_path, line):
    path = write_lines(tmp_path / "history.jsonl", {"kind": "step", "step": 1}, line, {"kind": "step", "step": 2})
    with pytest.raises(UserError, match=r"history\.jsonl:2: found .*, expected a JSON object with a \"kind\""):
        read_history(path)


def test_a_finished_last_line_is_no_torn_one(tmp_path):
    with pytest.raises(UserError, match=r"history\.jsonl:1: found"):
        read_history(write_lines(tmp_path / "history.jsonl", b'{"kind": "step"'))


def test_a_missing_history_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.jsonl: there is no such training history"):
        read_history(tmp_path / "none.jsonl")
