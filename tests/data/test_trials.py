from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.data import trials as trials_module
from svtoolkit.data.trials import Trials, hash_trials, read_trials, write_trials
from svtoolkit.errors import UserError


def pairs_of(trials: Trials) -> list[tuple[str, str, bool]]:
    return list(zip(trials.enrol, trials.test, trials.target.tolist(), strict=True))


def test_written_list_reads_back(tmp_path):
    trials = Trials(["a-1", "é-1"], ["a-2", "a-1"], np.array([True, False]))
    write_trials(tmp_path / "trials", trials)
    assert (tmp_path / "trials").read_text(encoding="utf-8") == "a-1 a-2 target\né-1 a-1 nontarget\n"
    read = read_trials(tmp_path / "trials")
    assert pairs_of(read) == pairs_of(trials)
    assert read.target.dtype == bool
    assert read.utterances == {"a-1", "a-2", "é-1"}
    assert len(read) == 2


_FIELDS = st.lists(
    st.sampled_from(["a", "b-1", "é", "0", "1", "target", "nontarget", "x\x1cy"]), min_size=2, max_size=4
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_FIELDS | st.tuples(st.just("a"), st.just("b"), st.sampled_from(["target", "1"])), max_size=4),
       st.sampled_from([" ", "\t"]), st.sampled_from(["\n", "\r\n"]))  # fmt: skip
def test_plain_lines_are_read_as_the_reader_that_goes_line_by_line_reads_them(tmp_path_factory, lines, between, end):
    path = tmp_path_factory.mktemp("lines") / "trials"
    path.write_bytes("".join(between.join(fields) + end for fields in lines).encode())

    def outcome():
        try:
            return pairs_of(read_trials(path))
        except UserError as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials_module, "read_columns", lambda content, count: None)
        assert found == outcome()


def test_blank_lines_tabs_and_foreign_line_ends_are_read(tmp_path):
    (tmp_path / "trials").write_bytes(b"\xef\xbb\xbfa-1\ta-2  target\r\n\r\na-1 b-1 nontarget")
    assert pairs_of(read_trials(tmp_path / "trials")) == [("a-1", "a-2", True), ("a-1", "b-1", False)]


@pytest.mark.parametrize("line", ["a-1 a-2", "1 a-1 a-2", "a-1 a-2 Target", "a-1 a-2 target x", "a-1 a-2 1"])
def test_line_of_another_form(line, tmp_path):
    path = tmp_path / "trials"
    path.write_text(f"a-1 a-2 target\n\n{line}\n")
    with pytest.raises(UserError) as error:
        read_trials(path)
    assert str(error.value) == (
        f"{path}:3: found {line!r}, expected `enrol test target` or `enrol test nontarget`, as on line 1"
    )


@pytest.mark.parametrize(
    "text",
    ["a-1 a-2 target\na-1 b-1 nontarget\n", "1 a-1 a-2\n0 a-1 b-1\n", "a-1 a-2 1\n\na-1 b-1 0\n"],
    ids=["kaldi", "voxceleb", "digit behind"],
)
def test_each_form_of_a_list_is_read(text, tmp_path):
    (tmp_path / "trials").write_text(text)
    assert pairs_of(read_trials(tmp_path / "trials")) == [("a-1", "a-2", True), ("a-1", "b-1", False)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 a b\n0 a c\na c 0\n", ":3: found 'a c 0', expected `1 enrol test` or `0 enrol test`, as on line 1"),
        ("a b 1\n1 a c\n", ":2: found '1 a c', expected `enrol test 1` or `enrol test 0`, as on line 1"),
        ("1 a 0\n", ":1: found '1 a 0', in which the first or the last field may be the label"),
        ("a b\n", ":1: found 'a b', expected `enrol test target` or `enrol test nontarget`, or 1 and 0 for these"),
        ("a b 2\n", ":1: found 'a b 2', expected `enrol test target`"),
    ],
)
def test_mixed_and_unclear_lists_name_the_line(text, message, tmp_path):
    (tmp_path / "trials").write_text(text)
    with pytest.raises(UserError) as error:
        read_trials(tmp_path / "trials")
    assert str(error.value).startswith(f"{tmp_path}/trials{message}")


def test_other_lines_tell_the_form_of_one_that_could_have_two(tmp_path):
    (tmp_path / "trials").write_text("1 x 0\n1 a b\n")
    assert pairs_of(read_trials(tmp_path / "trials")) == [("x", "0", True), ("a", "b", True)]
    (tmp_path / "trials").write_text("1 2 target\n3 4 nontarget\n")
    assert pairs_of(read_trials(tmp_path / "trials")) == [("1", "2", True), ("3", "4", False)]


def test_missing_and_empty_lists(tmp_path):
    for read in (read_trials, hash_trials):
        with pytest.raises(UserError, match="there is no such trial list"):
            read(tmp_path / "trials")
    (tmp_path / "trials").write_text("\n")
    with pytest.raises(UserError, match="the trial list is empty"):
        read_trials(tmp_path / "trials")


def test_hash_is_that_of_the_bytes(tmp_path):
    (tmp_path / "trials").write_bytes(b"a b target\n")
    assert hash_trials(tmp_path / "trials") == hashlib.sha256(b"a b target\n").hexdigest()
