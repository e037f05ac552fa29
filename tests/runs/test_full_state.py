"""Writing full states: whole or not there, the newest kept, older ones safe from an interruption and a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import Forked
from state_material import a_state, names, same

import svtoolkit.system.atomic
from svtoolkit.runs.full_state import list_states, load_latest_state, save_state

torch.set_num_threads(1)


def test_round_trip(tmp_path):
    path = save_state(tmp_path / "new" / "folder", 120, a_state(), keep=1)
    assert path.name == "state-0000000120.pt"
    assert names(path.parent) == [path.name]
    step, state = load_latest_state(path.parent)
    assert step == 120
    assert same(state, a_state())


def test_every_bit_survives(tmp_path):
    odd = [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 1e-45, 65504.0, 0.1]
    state: dict[str, Any] = {"numbers": odd, "nan in a dict": {"x": float("nan")}}
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        state[str(dtype)] = torch.tensor(odd).to(dtype)
    # a signalling and a quiet NaN with their own payloads
    state["payloads"] = torch.tensor([0x7F800001, 0x7FC12345, 0xFFC00000 - 2**32], dtype=torch.int32).view(
        torch.float32
    )
    state["integers"] = torch.tensor([-(2**63), 2**63 - 1, 2**53 + 1])
    state["bytes"] = torch.arange(256, dtype=torch.uint8)
    state["channels last"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state["empty"] = torch.empty(0, 3)
    save_state(tmp_path, 1, state, keep=1)
    found = load_latest_state(tmp_path)
    assert found is not None
    assert same(found[1], state)
    assert found[1]["channels last"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_are_kept(tmp_path, keep):
    for step in (9, 10, 100, 1000, 1001):
        save_state(tmp_path, step, {"step": step}, keep=keep)
    assert [int(path.stem[6:]) for path in list_states(tmp_path)] == [9, 10, 100, 1000, 1001][-keep:]
    assert load_latest_state(tmp_path) == (1001, {"step": 1001})


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_none_is_refused_before_anything_is_written(tmp_path, keep):
    save_state(tmp_path, 1, a_state(), keep=1)
    with pytest.raises(ValueError, match=f"keep is {keep}, expected 1 or more"):
        save_state(tmp_path, 2, a_state(), keep=keep)
    assert names(tmp_path) == ["state-0000000001.pt"]


def test_other_files_are_left_alone(tmp_path):
    others = ["state-1.pt", "state-0000000001.pt.bak", "state-best.pt", "epoch-0001.safetensors", ".hidden.tmp"]
    for name in others:
        (tmp_path / name).write_text("mine")
    for step in (1, 2, 3):
        save_state(tmp_path, step, a_state(step), keep=1)
    assert names(tmp_path) == sorted([*others, "state-0000000003.pt"])
    assert [path.name for path in list_states(tmp_path)] == ["state-0000000003.pt"]


def test_a_state_of_the_same_step_is_replaced(tmp_path):
    save_state(tmp_path, 5, a_state(1), keep=2)
    save_state(tmp_path, 5, a_state(2), keep=2)
    assert same(load_latest_state(tmp_path), (5, a_state(2)))


@pytest.mark.parametrize("keep", [1, 2])
def test_after_a_fall_back_new_states_are_kept_beside_the_damaged_later_one(tmp_path, keep):
    """The damaged state has the highest step: it must not count among the newest that are kept."""
    for step in (50, 100):
        save_state(tmp_path, step, a_state(step), keep=2)
    (tmp_path / "state-0000000100.pt").write_bytes(b"damaged")
    for step in (60, 70, 80):
        save_state(tmp_path, step, a_state(step), keep=keep)
        assert same(load_latest_state(tmp_path), (step, a_state(step)))
    kept = [60, 70, 80][-keep:]
    assert names(tmp_path) == [f"state-{step:010d}.pt" for step in (*kept, 100)]
    save_state(tmp_path, 100, a_state(100), keep=keep)
    assert same(load_latest_state(tmp_path), (100, a_state(100)))
    assert len(list_states(tmp_path)) == keep


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_an_interrupted_write_leaves_the_old_states_and_nothing_else(tmp_path, monkeypatch, failure):
    save_state(tmp_path, 1, a_state(1), keep=1)

    def interrupted(state, stream):
        stream.write(b"half of a st")
        raise failure("in the middle")

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(OSError if failure is RuntimeError else failure, match="in the middle"):
        save_state(tmp_path, 2, a_state(2), keep=1)
    assert names(tmp_path) == ["state-0000000001.pt"]
    assert same(load_latest_state(tmp_path), (1, a_state(1)))


def killed_at_flush(folder: Path) -> None:
    os.fsync = lambda descriptor: os._exit(9)
    save_state(folder, 2, {"x": 1}, keep=1)


def test_a_killed_write_leaves_the_old_states_and_its_rest_is_cleared_away_later(tmp_path):
    save_state(tmp_path, 1, a_state(1), keep=1)
    killed = Forked(killed_at_flush, tmp_path)
    killed.join()
    assert killed.exitcode == 9
    assert len(names(tmp_path)) == 2
    assert same(load_latest_state(tmp_path), (1, a_state(1)))
    save_state(tmp_path, 3, a_state(3), keep=1)
    assert names(tmp_path) == ["state-0000000003.pt"]


# ---- a full disk --------------------------------------------------------------------------------------------------


class FullDisk:
    """A file that takes a number of bytes and no more."""

    def __init__(self, stream, room: int) -> None:
        self.stream = stream
        self.room = room

    def write(self, data) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.stream.write(data)

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_) -> None:
        self.stream.close()


@pytest.mark.parametrize("room", [0, 1, 63, 64, 500, 1000, 1400])
def test_a_full_disk_while_writing(tmp_path, monkeypatch, room):
    save_state(tmp_path, 1, a_state(1), keep=1)
    assert (tmp_path / "state-0000000001.pt").stat().st_size > 1400
    real = os.fdopen
    monkeypatch.setattr(
        svtoolkit.system.atomic.os, "fdopen", lambda *arguments, **named: FullDisk(real(*arguments, **named), room)
    )
    with pytest.raises(OSError, match="No space left on device"):
        save_state(tmp_path, 2, a_state(2), keep=1)
    monkeypatch.undo()
    assert names(tmp_path) == ["state-0000000001.pt"]
    assert same(load_latest_state(tmp_path), (1, a_state(1)))


def test_a_full_disk_while_flushing(tmp_path, monkeypatch):
    save_state(tmp_path, 1, a_state(1), keep=1)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(svtoolkit.system.atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        save_state(tmp_path, 2, a_state(2), keep=1)
    assert names(tmp_path) == ["state-0000000001.pt"]


def refused_beyond(limit: int, folder: Path) -> None:
    import resource

    save_state(folder, 1, {"x": torch.arange(5)}, keep=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    with pytest.raises(OSError):  # noqa: PT011 (whatever the system says)
        save_state(folder, 2, {"x": torch.ones(200_000)}, keep=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="resource limits are POSIX")
@pytest.mark.parametrize("limit", [100, 300_000])
def test_a_real_limit_on_the_file(tmp_path, limit):
    """The system itself refuses the bytes beyond a limit; the process survives and says so."""
    limited = Forked(refused_beyond, limit, tmp_path)
    limited.join()
    assert limited.exitcode == 0, limited.output()
    assert names(tmp_path) == ["state-0000000001.pt"]
    assert same(load_latest_state(tmp_path), (1, {"x": torch.arange(5)}))
