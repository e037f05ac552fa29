"""Score files: what is written is read back exactly, and every broken line is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring import score_file
from svtoolkit.scoring.score_file import align_scores, read_scores, write_scores

TRIALS = Trials(["a-1", "a-1", "b-1"], ["a-2", "b-1", "c-1"], np.array([True, False, False]))


def test_written_scores_are_read_back(tmp_path):
    path = tmp_path / "scores" / "eval.txt"
    write_scores(path, TRIALS, np.array([0.5, -1 / 3, 1e-7]))
    assert path.read_text() == "a-1 a-2 0.500000\na-1 b-1 -0.333333\nb-1 c-1 0.000000\n"
    enrol, test, scores = read_scores(path)
    assert (enrol, test) == (TRIALS.enrol, TRIALS.test)
    assert scores.tolist() == [0.5, -0.333333, 0]


def test_wespeakers_tools_find_the_label_behind_the_score(tmp_path):
    path = tmp_path / "scores"
    write_scores(path, TRIALS, np.array([0.5, 0.25, -0.125]), layout="wespeaker")
    assert path.read_text().splitlines() == [
        "a-1 a-2 0.500000 target",
        "a-1 b-1 0.250000 nontarget",
        "b-1 c-1 -0.125000 nontarget",
    ]
    np.testing.assert_array_equal(align_scores(TRIALS, path), [0.5, 0.25, -0.125])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.booleans())
def test_six_decimals_of_every_number_survive(tmp_path_factory, scores, single):
    array = np.array(scores, dtype=np.float32 if single else np.float64)
    path = tmp_path_factory.mktemp("survive") / "scores"
    write_scores(path, TRIALS, array)
    np.testing.assert_allclose(read_scores(path)[2], array, rtol=1e-12, atol=5.01e-7)
    assert all(len(line.split(".")[1]) == 6 for line in path.read_text().splitlines())


_FIELD = st.text("ab-.10é\u00a0\u2028\x1c", min_size=0, max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(_FIELD | st.sampled_from(["target", "0", "1", "0.5"]), min_size=2, max_size=5), max_size=4),
    st.sampled_from([" ", "\t", "  "]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_plain_lines_are_read_as_the_reader_that_goes_line_by_line_reads_them(tmp_path_factory, lines, between, end):
    path = tmp_path_factory.mktemp("lines") / "scores"
    path.write_bytes("".join(between.join(fields) + end for fields in lines).encode())

    def outcome():
        try:
            enrol, test, scores = read_scores(path)
            return enrol, test, scores.tolist()
        except UserError as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score_file, "read_columns", lambda content, count: None)
        assert found == outcome()


def test_a_hash_in_an_id_is_no_comment(tmp_path):
    path = tmp_path / "scores"
    write_scores(path, Trials(["#1", "x"], ["y", "#2"], np.array([True, False])), np.array([1.0, 2.0]))
    assert read_scores(path)[0] == ["#1", "x"]
    path.write_text("# c 2.0\na b 1.0\n")
    assert read_scores(path)[0] == ["#", "a"]


def test_scores_follow_the_trial_list(tmp_path):
    path = tmp_path / "scores"
    path.write_text("b-1 c-1 3\n\na-1 b-1 2\na-1 a-2 1\n")
    np.testing.assert_array_equal(align_scores(TRIALS, path), [1, 2, 3])


def test_a_pair_may_be_listed_twice_with_one_score(tmp_path):
    path = tmp_path / "scores"
    path.write_text("a b 1.5\nc d 2\na b 1.50\n")
    twice = Trials(["a", "a", "c"], ["b", "b", "d"], np.array([True, True, False]))
    np.testing.assert_array_equal(align_scores(twice, path), [1.5, 1.5, 2])
    path.write_text("a b 1.5\nc d 2\na b 1.6\n")
    with pytest.raises(UserError, match=r"scores:3: `a b` scores 1.6, but 1.5 on line 1"):
        align_scores(twice, path)


def test_missing_and_extra_scores_are_counted(tmp_path):
    path = tmp_path / "scores"
    path.write_text("a-1 a-2 1\nx y 2\na-2 a-1 3\n")
    with pytest.raises(UserError, match=r"scores: 2 of 3 trials have no score: `a-1 b-1`, `b-1 c-1`;"):
        align_scores(TRIALS, path)
    first = Trials(TRIALS.enrol[:1], TRIALS.test[:1], TRIALS.target[:1])
    with pytest.raises(UserError, match=r"2 of 3 scored pairs are not in the trial list: `x y`, `a-2 a-1`;"):
        align_scores(first, path)


def test_only_the_first_missing_are_named(tmp_path):
    path = tmp_path / "scores"
    path.write_text("x y 1\n")
    many = Trials([f"e{n}" for n in range(5)], ["t"] * 5, np.zeros(5, dtype=bool))
    with pytest.raises(UserError, match=r"5 of 5 trials have no score: `e0 t`, `e1 t`, `e2 t`, \.\.\.;"):
        align_scores(many, path)


@pytest.mark.parametrize("reader", [read_scores, lambda path: align_scores(TRIALS, path)])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b 1\na c nan\n", r"scores:2: the score of `a c` is nan; expected a finite number"),
        ("a b inf\n", r"scores:1: the score of `a b` is inf"),
        ("a b 1\n\na b\n", r"scores:3: found 'a b', expected `enrol test score`"),
        ("a b target\n", r"scores:1: the score 'target' is not a number"),
        ("a b 0.1 maybe\n", r"scores:1: found 'a b 0.1 maybe', expected `enrol test score` or `enrol test score targ"),
        ("a b 0.1 target x\n", r"scores:1: found 'a b 0.1 target x'"),
        ("", "the file holds no score"),
        ("\n \n", "the file holds no score"),
    ],
)
def test_broken_files_are_refused(tmp_path, reader, text, message):
    path = tmp_path / "scores"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        reader(path)


@pytest.mark.parametrize(("target", "nontarget"), [("target", "nontarget"), ("1", "0")])
def test_labels_behind_the_scores_are_read_and_compared(tmp_path, target, nontarget):
    trials = Trials(["a", "a"], ["b", "c"], np.array([True, False]))
    path = tmp_path / "scores"
    path.write_text(f"a c 0.1 {nontarget}\na b 0.9 {target}\n")
    np.testing.assert_array_equal(align_scores(trials, path), [0.9, 0.1])
    np.testing.assert_array_equal(read_scores(path)[2], [0.1, 0.9])
    path.write_text(f"a c 0.1 {nontarget}\na b 0.9 {nontarget}\n")
    with pytest.raises(UserError, match="scores:2: says that `a b` is a nontarget trial, but the trial list "):
        align_scores(trials, path)


def test_missing_file_is_refused(tmp_path):
    for reader in (read_scores, lambda path: align_scores(TRIALS, path)):
        with pytest.raises(UserError, match="there is no such score file"):
            reader(tmp_path / "none")


@pytest.mark.parametrize(
    ("trials", "scores", "message"),
    [
        (TRIALS, [1.0, 2.0], r"3 trials have scores of shape \(2,\)"),
        (TRIALS, [1.0, np.nan, np.inf], r"2 scores are NaN or infinite \(the first is that of `a-1 b-1`\)"),
        (Trials(["a b"], ["c"], np.array([True])), [1.0], "utterance id 'a b' is empty or holds a space"),
        (Trials([""], ["c"], np.array([True])), [1.0], "utterance id '' is empty or holds a space"),
    ],
)
def test_unwritable_scores_leave_the_old_file(tmp_path, trials, scores, message):
    path = tmp_path / "scores"
    path.write_text("old")
    with pytest.raises(UserError, match=message):
        write_scores(path, trials, np.array(scores))
    assert path.read_text() == "old"
