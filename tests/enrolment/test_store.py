"""The store of known speakers: whole after a kill, shared by writers, of one model, forgetful where it is told to."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest

from svtoolkit.enrolment import schema, store
from svtoolkit.enrolment.store import SpeakerStore, StoreModel, recognised
from svtoolkit.errors import UserError

MODEL = StoreModel("a" * 64, "exp/r34/model", 16, 0.4, "eer")


def vectors(number: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((count, 16)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "speakers.db"


def test_what_is_added_is_read_again(path: Path) -> None:
    known = SpeakerStore(path)
    assert known.add(MODEL, "anna", vectors(1)) == 2
    assert known.add(MODEL, "anna", vectors(2, 1)) == 3
    assert known.add(MODEL, "anna", vectors(2, 1)) == 3  # there already
    assert known.add(MODEL, "bo é", vectors(3)) == 2
    np.testing.assert_array_equal(known.embeddings("anna"), np.concatenate([vectors(1), vectors(2, 1)]))
    assert [(each.name, each.recordings) for each in known.speakers()] == [("anna", 3), ("bo é", 2)]
    assert known.model() == MODEL
    assert known.add(MODEL, "anna", vectors(4, 1), replace=True) == 1
    np.testing.assert_array_equal(known.embeddings("anna"), vectors(4, 1))


def test_the_closest_come_first_and_below_the_threshold_nobody_is_known(path: Path) -> None:
    known = SpeakerStore(path)
    for number, name in enumerate(("anna", "bo", "cem")):
        known.add(MODEL, name, vectors(number))
    test = vectors(1).sum(0)
    nearest = known.nearest(test, 2)
    units = vectors(1) / np.linalg.norm(vectors(1), axis=1, keepdims=True)
    centre = units.mean(0)
    assert nearest[0] == ("bo", pytest.approx(centre @ test / np.linalg.norm(centre) / np.linalg.norm(test)))
    assert len(nearest) == 2
    assert nearest[1][1] < nearest[0][1]
    assert recognised(nearest, nearest[0][1]) == "bo"
    assert recognised(nearest, nearest[0][1] + 1e-9) is None
    assert recognised(nearest, None) is None
    assert recognised([], 0.0) is None


def test_another_model_is_refused_and_both_are_named(path: Path) -> None:
    known = SpeakerStore(path)
    known.add(MODEL, "anna", vectors(1))
    other = StoreModel("b" * 64, "exp/other/model", 16)
    for refused in (lambda: known.add(other, "bo", vectors(2)), lambda: known.check_model(other)):
        with pytest.raises(UserError) as caught:
            refused()
        assert "of exp/r34/model (aaaaaaaaaaaa), found the model exp/other/model (bbbbbbbbbbbb)" in str(caught.value)
    assert [each.name for each in known.speakers()] == ["anna"]
    known.delete("anna")
    known.add(other, "bo", vectors(2))  # nothing was left to be mixed with
    assert known.model() == other


def test_the_threshold_is_that_of_the_first_model_until_one_is_given(path: Path) -> None:
    known = SpeakerStore(path)
    bare = StoreModel("a" * 64, "m", 16)
    for model, expected in (
        (bare, (None, None)),
        (MODEL, (0.4, "eer")),
        (StoreModel("a" * 64, "m", 16, 0.5, "fa_rate=0.01"), (0.4, "eer")),
        (StoreModel("a" * 64, "m", 16, 0.6), (0.6, None)),
    ):
        known.add(model, "anna", vectors(1))
        assert (known.model().threshold, known.model().operating_point) == expected


def test_deleted_is_gone_from_every_byte(path: Path) -> None:
    known = SpeakerStore(path)
    many = vectors(0, 40)
    for number in range(20):
        known.add(MODEL, f"speaker {number}", vectors(100 + number, 10))
        known.add(MODEL, "Zacharias Unique", many[2 * number : 2 * number + 2])
    written = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"Zacharias" in written  # so that it would be found
    assert many[7].tobytes() in written
    known.delete("Zacharias Unique")
    known.add(MODEL, "speaker 3", vectors(1), replace=True)
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"Zacharias" not in left
    gone = [*many, *vectors(103, 10)]
    assert not [row for row in gone if row.tobytes()[:12] in left]
    assert vectors(104, 10)[5].tobytes() in left
    with pytest.raises(UserError, match="knows nobody called 'Zacharias Unique'; `svt enrolled` lists"):
        known.delete("Zacharias Unique")


# ---- several processes ----

FORK = multiprocessing.get_context("fork")


def _write(path: Path, number: int, times: int) -> None:
    for turn in range(times):
        SpeakerStore(path).add(MODEL, f"speaker {number}", vectors(1000 * number + turn, 1))


def test_writers_at_the_same_time_lose_nothing(path: Path) -> None:
    writers = [FORK.Process(target=_write, args=(path, number, 8)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert [each.recordings for each in SpeakerStore(path).speakers()] == [8] * 4


def _die_while_adding(path: Path, statement: str) -> None:
    """Killed before a statement of the transaction is done; all rows before it are on disk by then."""
    connect = schema.connect

    def watched(file: Path, *, create: bool) -> sqlite3.Connection:
        connection = connect(file, create=create)
        connection.execute("PRAGMA cache_size=0")  # pages go to disk before the commit
        connection.execute("PRAGMA cache_spill=1")

        def trace(sql: str) -> None:
            if sql.startswith(statement):
                os.kill(os.getpid(), signal.SIGKILL)

        connection.set_trace_callback(trace)
        return connection

    store.connect = watched
    SpeakerStore(path).add(MODEL, "bo", vectors(5, 200))


@pytest.mark.parametrize(
    "statement", ["BEGIN", "INSERT OR IGNORE INTO recordings", "SELECT count(*) FROM rec", "COMMIT"]
)
def test_a_kill_loses_nothing_and_leaves_nothing_half_written(path: Path, statement: str) -> None:
    known = SpeakerStore(path)
    known.add(MODEL, "anna", vectors(1))
    process = FORK.Process(target=_die_while_adding, args=(path, statement))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [(each.name, each.recordings) for each in known.speakers()] == [("anna", 2)]
    assert known.add(MODEL, "bo", vectors(5, 200)) == 200
    assert [file.name for file in path.parent.iterdir()] == ["speakers.db"]


def test_killed_at_any_time_the_answer_that_was_given_stays(path: Path) -> None:
    process = FORK.Process(target=_write, args=(path, 1, 10_000))
    process.start()
    time.sleep(0.3)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    known = SpeakerStore(path)
    found = known.embeddings("speaker 1")
    np.testing.assert_array_equal(found, np.concatenate([vectors(1000 + turn, 1) for turn in range(len(found))]))


# ---- what is no store ----


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")


def newer(path: Path) -> None:
    SpeakerStore(path).add(MODEL, "anna", vectors(1))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=2")


def damaged(path: Path) -> None:
    SpeakerStore(path).add(MODEL, "anna", vectors(1, 400))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x55" * (len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "there is no such store; correct the path, or make one with `svt enrol`"),
        (lambda path: path.mkdir(), "is a folder, expected a store of speakers"),
        (lambda path: path.write_bytes(b""), "is empty, expected a store of speakers; make one with `svt enrol`"),
        (lambda path: path.write_text("a text of some bytes" * 70), "is no store of speakers, or a damaged one"),
        (other_database, "is a database of another program, expected a store of speakers; give a file of its own"),
        (newer, "is a store of version 2, this svtoolkit reads version 1; use a newer svtoolkit"),
        (damaged, "is no store of speakers, or a damaged one"),
        (lambda path: os.mkfifo(path), "is a pipe, expected a regular file"),
    ],
)  # fmt: skip
def test_what_is_no_store_is_named(path: Path, prepare, message: str) -> None:
    prepare(path)
    with pytest.raises(UserError) as caught:
        SpeakerStore(path).speakers()
    assert str(caught.value).startswith(f"{path}: {message}")


def test_no_folder_no_store(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing/s\.db: there is no folder .*missing; make it first"):
        SpeakerStore(tmp_path / "missing" / "s.db").add(MODEL, "anna", vectors(1))


def test_a_store_that_others_keep_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = SpeakerStore(path)
    known.add(MODEL, "anna", vectors(1))
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    with sqlite3.connect(path, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match=r"other programs have been writing to it for 0\.05 s"):
            known.add(MODEL, "bo", vectors(2))
        holder.execute("ROLLBACK")


@pytest.mark.parametrize("name", ["", " anna", "anna\n", "a\x00b", "x" * 201])
def test_names_that_no_list_could_show(path: Path, name: str) -> None:
    with pytest.raises(UserError, match="expected 1 to 200 printable characters without blanks at the ends"):
        SpeakerStore(path).add(MODEL, name, vectors(1))
    assert not path.exists()


def test_an_embedding_that_is_not_finite_is_not_stored(path: Path) -> None:
    with pytest.raises(UserError, match="not finite"):
        SpeakerStore(path).add(MODEL, "anna", np.full((1, 16), np.nan))
    assert not path.exists()
