"""What killed processes leave is removed by who writes there next; what is being written never is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from svtoolkit.data.bad_files import write_bad_files
from svtoolkit.runs.exp_dir import alone_in
from svtoolkit.system import temporary_names
from svtoolkit.system.atomic import atomic_folder, atomic_write
from svtoolkit.system.output_folder import remove_leftovers
from svtoolkit.system.temporary_names import LONGEST_SILENCE, name_beside

NOBODY = 2**22 + 1
"""No process of Linux has this number."""


def left_by(pid: int, target: Path, *, session: str = "0123abcd", machine: str | None = None) -> Path:
    """The name that a process would have given its temporary file; made as a file."""
    own = temporary_names._machine()
    path = name_beside(target)
    path = path.with_name(f"{path.name.partition(own)[0]}{machine or own}-{pid}-{session}01234567.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("half")
    return path


@pytest.mark.parametrize(
    ("pid", "machine", "days", "stays"),
    [
        (NOBODY, None, 0, False),
        (1, None, 9, True),  # lives
        (os.getpid(), None, 0, False),  # had the number of this process
        (NOBODY, "01234567", 0, True),  # nobody here can tell
        (NOBODY, "01234567", 2, False),
    ],
    ids=["dead", "living", "before this one", "elsewhere", "elsewhere, long silent"],
)
def test_the_next_write_removes_what_a_killed_one_left(pid, machine, days, stays, tmp_path):
    target = tmp_path / "model.yaml"
    other, left = left_by(NOBODY, tmp_path / "other.yaml"), left_by(pid, target, machine=machine)
    moment = time.time() - days * LONGEST_SILENCE
    os.utime(left, (moment, moment))
    with atomic_write(target) as stream:
        stream.write("whole")
    assert left.exists() == stays
    assert other.exists()


def write(target: Path) -> None:
    with atomic_write(target) as stream:
        stream.write("whole")


def test_a_folder_is_listed_once_however_many_files_are_written_there(tmp_path, monkeypatch):
    left = left_by(NOBODY, tmp_path / "b.yaml")
    plain, listed = os.listdir, []
    monkeypatch.setattr(os, "listdir", lambda folder: listed.append(folder) or plain(folder))
    write(tmp_path / "a.yaml")
    assert left.exists()
    for name in ("b.yaml", "a.yaml", "b.yaml", "c.yaml"):
        write(tmp_path / name)
    assert listed == [tmp_path]
    assert sorted(plain(tmp_path)) == ["a.yaml", "b.yaml", "c.yaml"]


def test_a_child_that_is_forked_looks_for_itself(tmp_path):
    """What one before it left came after its parent had looked."""
    target = tmp_path / "model.yaml"
    write(target)
    if not (child := os.fork()):
        with atomic_write(target):
            os._exit(9)
    os.waitpid(child, 0)
    assert len(os.listdir(tmp_path)) == 2
    if not (child := os.fork()):
        write(target)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.listdir(tmp_path) == ["model.yaml"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="Linux tells by /proc")
def test_a_writer_that_has_ended_and_is_not_reaped_is_dead(tmp_path):
    if not (child := os.fork()):
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    left = left_by(child, tmp_path / "file")
    remove_leftovers([tmp_path])
    os.waitpid(child, 0)
    assert not left.exists()


def test_who_writes_at_the_same_time_is_left_alone(tmp_path):
    target = tmp_path / "file"
    with atomic_write(target) as first:
        with atomic_write(target) as second:
            second.write("second")
        remove_leftovers([tmp_path])
        first.write("first")
    assert target.read_text() == "first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_child_that_is_forked_has_another_name(tmp_path):
    mine = name_beside(tmp_path / "file").name.rpartition("-")[2][:8]
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.write(writer, name_beside(tmp_path / "file").name.rpartition("-")[2][:8].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 8).decode() != mine
    os.close(reader)
    os.close(writer)


def test_a_partial_folder_is_removed_when_the_folder_is_made_again(tmp_path):
    left = left_by(NOBODY, tmp_path / "copy")
    left.unlink()
    left.mkdir()
    (left / "utt2spk").write_text("half")
    with atomic_folder(tmp_path / "copy") as aside:
        (aside / "utt2spk").write_text("whole")
    assert os.listdir(tmp_path) == ["copy"]


def test_a_run_that_is_resumed_clears_its_folder(tmp_path):
    left = [
        left_by(NOBODY, tmp_path / name)
        for name in (
            "config.yaml", "bad_files.tsv", "checkpoints/state-0000000003.pt", "checkpoints/epoch-0002.safetensors",
            "logs/history.jsonl", "logs/commands.txt", "validation/wav.scp",
        )
    ]  # fmt: skip
    of_another_machine = left_by(7, tmp_path / "checkpoints" / "epoch-0001.safetensors", machine="01234567")
    living = left_by(1, tmp_path / "logs" / "commands.txt")
    with alone_in(tmp_path / "logs"):
        assert not [path for path in [*left, of_another_machine] if path.exists()]
    assert living.exists()


def test_a_list_of_bad_files_that_is_not_written_again(tmp_path):
    left = left_by(NOBODY, tmp_path / "bad_files.tsv")
    write_bad_files(tmp_path, [])
    assert not left.exists()
