"""Stops of every kind: nothing half-written bears a final name, and what is continued ends in the same bytes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from shard_material import read_shards, write_corpus

import svtoolkit.system.atomic
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.shard_verification import verify_shards
from svtoolkit.data.sharding import writer
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.errors import UserError
from svtoolkit.system import file_lock
from svtoolkit.system.file_lock import hold_lock

PER_SHARD = 3  # of 12 utterances: 4 shards


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> KaldiDir:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def uninterrupted(corpus: KaldiDir, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "out"
    write_shards(corpus, out, per_shard=PER_SHARD)
    return read_shards(out)


def run_and_kill(program: str, corpus: KaldiDir, out: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run write_shards in a process of its own, in which ``program`` has done its work before."""
    corpus.write(folder / "data")
    script = folder / "program.py"
    call = f"""
        if __name__ == "__main__":
            main(KaldiDir.read({str(folder / "data")!r}), {str(out)!r})
    """
    head = """
        import os, signal, sys, time
        import svtoolkit.system.atomic
        from svtoolkit.data.kaldi_dir import KaldiDir
        from svtoolkit.data.sharding.writer import write_shards
    """
    script.write_text("\n".join(textwrap.dedent(part) for part in (head, program, call)))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("moment", ["before the name", "after the name", "amid the tables"])
def test_killed_and_continued(corpus, uninterrupted, tmp_path, moment):
    """Renames: the claim, then archive and record of each shard, then the tables."""
    number, after = {"before the name": (6, False), "after the name": (6, True), "amid the tables": (11, True)}[moment]
    program = f"""
        sys.path.insert(0, {str(Path(__file__).parents[2] / "material")!r})
        from killed_rename import kill_at_rename

        def main(kaldi_dir, out):
            kill_at_rename({number}, after={after})
            write_shards(kaldi_dir, out, per_shard={PER_SHARD})
    """
    out = tmp_path / "out"
    assert run_and_kill(program, corpus, out, tmp_path).returncode == -signal.SIGKILL
    left = read_shards(out)
    archives = [name for name in left if name.endswith(".tar") and not name.startswith(".")]
    assert len(archives) == {"before the name": 2, "after the name": 3, "amid the tables": 4}[moment]
    assert all(left[name] == uninterrupted[name] for name in left if not name.startswith("."))
    assert any(name.startswith(".shard") for name in left) == (moment == "before the name")
    assert "shards.scp" not in left
    told: list[int] = []
    done = write_shards(corpus, out, per_shard=PER_SHARD, progress=told.append)
    assert (done.reused, done.shards) == ({"amid the tables": 4}.get(moment, 2), 4)
    assert sum(told) == 12
    assert read_shards(out) == uninterrupted
    assert verify_shards(out) == []


def test_workers_of_a_killed_process_end(corpus, uninterrupted, tmp_path):
    program = f"""
        import multiprocessing

        def tell(_):
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        def main(kaldi_dir, out):
            write_shards(kaldi_dir, out, per_shard={PER_SHARD}, jobs=2, progress=tell)
    """
    out = tmp_path / "out"
    done = run_and_kill(program, corpus, out, tmp_path)
    assert done.returncode == -signal.SIGKILL
    workers = [int(word) for word in done.stdout.split()]
    assert len(workers) == 2
    limit = time.monotonic() + 20
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < limit, "a worker outlives the process that it works for"
        time.sleep(0.05)
    write_shards(corpus, out, per_shard=PER_SHARD, jobs=2)
    assert read_shards(out) == uninterrupted


def is_running(process: int) -> bool:
    """A zombie, which nobody has waited for yet, is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("forked_workers")
def test_a_killed_worker_is_a_sentence(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "make_shard", _die)
    with pytest.raises(UserError, match=r"out: a worker process was killed, probably because memory ran out"):
        write_shards(corpus, tmp_path / "out", per_shard=PER_SHARD, jobs=2)


def _die(task: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_nothing_to_do(corpus, uninterrupted, tmp_path, caplog):
    out = tmp_path / "out"
    write_shards(corpus, out, per_shard=PER_SHARD)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()}
    told: list[int] = []
    with caplog.at_level("INFO", "svtoolkit"):
        done = write_shards(corpus, out, per_shard=PER_SHARD, jobs=2, progress=told.append)
    assert (done.reused, done.shards, done.utterances, sum(told)) == (4, 4, 12, 12)
    assert caplog.messages == [f"{out}: all shards are there"]
    assert {path: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda out: (out / "shard-000002.tar").unlink(), "shard-000002.tar: has 0 bytes, was written with "),
        (
            lambda out: os.truncate(out / "shard-000002.tar", 1000),
            "shard-000002.tar: has 1000 bytes, was written with ",
        ),
        (
            lambda out: (out / ".shards" / "shard-000002.json").write_text("{"),
            "shard-000002.json: is no record of a shard",
        ),
        (
            lambda out: (out / ".shards" / "shard-000002.json").write_text('{"size": 1, "sha256": "", "entries": 3}'),
            "shard-000002.json: is no record of a shard",
        ),
        (
            lambda out: (out / ".shards" / "shard-000002.json").write_text(
                (out / ".shards" / "shard-000001.json").read_text()
            ),
            "shard-000002.json: is the record of other utterances",
        ),
    ],
)
def test_what_is_not_whole_is_made_again(corpus, uninterrupted, tmp_path, caplog, harm, message):
    out = tmp_path / "out"
    write_shards(corpus, out, per_shard=PER_SHARD)
    harm(out)
    done = write_shards(corpus, out, per_shard=PER_SHARD)
    assert done.reused == 3
    assert message in caplog.text
    assert read_shards(out) == uninterrupted


def test_other_settings_are_refused(corpus, uninterrupted, tmp_path):
    out = tmp_path / "out"
    write_shards(corpus, out, per_shard=PER_SHARD)
    fewer = corpus.subset(sorted(corpus.utt2spk)[1:])
    elsewhere = corpus.subset(corpus.utt2spk)
    elsewhere.wav_scp["s00-0"] = elsewhere.wav_scp["s00-1"]
    for kaldi_dir, options in (
        (corpus, {"per_shard": 4}),
        (corpus, {"per_shard": PER_SHARD, "seed": 1}),
        (corpus, {"per_shard": PER_SHARD, "order": "sorted"}),
        (corpus, {"per_shard": PER_SHARD, "format": "original"}),
        (corpus, {"per_shard": PER_SHARD, "channel": 0}),
        (fewer, {"per_shard": PER_SHARD}),
        (elsewhere, {"per_shard": PER_SHARD}),
    ):
        with pytest.raises(UserError) as error:
            write_shards(kaldi_dir, out, **options)
        claim = (out / ".shards" / "made_of.json").read_text().strip()
        assert f"made_of.json: the folder holds shards made of {claim}, now asked for " in str(error.value)
        assert "choose another folder or delete this one" in str(error.value)
    assert read_shards(out) == uninterrupted
    assert json.loads(claim)["per_shard"] == PER_SHARD


@pytest.mark.parametrize("name", ["wav.scp", "segments", "shards.scp", "shard-000000.tar"])
def test_a_folder_with_something_else_is_refused(corpus, tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(UserError, match=f"{name}: the folder holds data already; choose another one for the shards"):
        write_shards(corpus, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_one_process_at_a_time(corpus, tmp_path):
    out = tmp_path / "out"
    (out / ".shards").mkdir(parents=True)
    with (
        hold_lock(out / ".shards" / "lock"),
        pytest.raises(UserError, match=r"out: another process is writing shards there; wait for it or stop it"),
    ):
        write_shards(corpus, out, per_shard=PER_SHARD)
    write_shards(corpus, out, per_shard=PER_SHARD)
    assert (out / "shards.scp").is_file()


def test_a_file_system_without_locks(corpus, uninterrupted, tmp_path, monkeypatch, caplog):
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    write_shards(corpus, tmp_path / "out", per_shard=PER_SHARD)
    assert read_shards(tmp_path / "out") == uninterrupted
    assert caplog.messages == [
        f"{tmp_path}/out/.shards/lock: the file system has no locks; see to it that no other process writes there"
    ]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(corpus, uninterrupted, tmp_path, monkeypatch, number):
    out, calls = tmp_path / "out", []
    plain = os.fsync

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        # Flushed: claim and its folder, then archive, folder, record, folder of every shard.
        if len(calls) == 7:
            raise OSError(number, os.strerror(number))
        plain(descriptor)

    monkeypatch.setattr(svtoolkit.system.atomic.os, "fsync", fail)
    with pytest.raises(UserError) as error:
        write_shards(corpus, out, per_shard=PER_SHARD)
    assert str(error.value).startswith(f"{out}/shard-000001.tar: {os.strerror(number)}; what is finished is kept: free")
    assert str(error.value).endswith("run the same command again")
    monkeypatch.undo()
    assert sorted(read_shards(out)) == ["shard-000000.tar"]
    assert write_shards(corpus, out, per_shard=PER_SHARD).reused == 1
    assert read_shards(out) == uninterrupted


@pytest.mark.usefixtures("forked_workers")
def test_a_disk_that_fills_up_under_a_worker(corpus, uninterrupted, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "make_shard", _find_no_room)
    with pytest.raises(UserError, match=r"a\.tar: No space left on device; what is finished is kept: free some disk"):
        write_shards(corpus, tmp_path / "out", per_shard=PER_SHARD, jobs=2)
    monkeypatch.undo()
    write_shards(corpus, tmp_path / "out", per_shard=PER_SHARD)
    assert read_shards(tmp_path / "out") == uninterrupted


def _find_no_room(task: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "a.tar")


def test_another_refusal_of_the_system_stays_what_it_is(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "make_shard", _may_not)
    with pytest.raises(PermissionError, match=r"a\.tar"):
        write_shards(corpus, tmp_path / "out", per_shard=PER_SHARD)


def _may_not(task: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", "a.tar")
