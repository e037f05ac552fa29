"""Every way to stop a conversion and go on: killed, without room on the disk, with another one in its folder."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import soundfile
from conversion_material import audio_of, contents, write_source

from svtoolkit.data import conversion
from svtoolkit.data.conversion import convert_corpus
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.system import atomic_batch, file_lock
from svtoolkit.system.file_lock import hold_lock

UNIX = pytest.mark.skipif(os.name != "posix", reason="signals, limits and locks of Unix")


@pytest.fixture
def source(tmp_path) -> Path:
    return write_source(tmp_path / "source")


@pytest.mark.usefixtures("forked_workers")
def test_what_is_there_is_not_made_again(source, tmp_path):
    convert_corpus(source, tmp_path / "out")
    first = contents(tmp_path / "out")
    times = {file: file.stat().st_mtime_ns for file in audio_of(tmp_path / "out")}
    original = KaldiDir.read(source)
    for path in original.wav_scp.values():
        Path(path).unlink()  # so that nothing could be made
    convert_corpus(source, tmp_path / "out", jobs=2)
    assert contents(tmp_path / "out") == first
    assert {file: file.stat().st_mtime_ns for file in audio_of(tmp_path / "out")} == times


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b"fLaC"), lambda path: soundfile.write(path, [0.1] * 9, 8000)]
)
def test_a_file_that_is_not_of_the_conversion_is_made_again(spoil, source, tmp_path):
    convert_corpus(source, tmp_path / "out")
    first = contents(tmp_path / "out")
    spoil(tmp_path / "out" / "audio" / "s1" / "s1-v-0.flac")
    convert_corpus(source, tmp_path / "out")
    assert contents(tmp_path / "out") == first


def test_a_full_disk_is_a_sentence_and_nothing_is_lost(source, tmp_path, monkeypatch):
    convert_corpus(source, tmp_path / "undisturbed")
    out, flushed = tmp_path / "out", []
    flush = atomic_batch._sync_file_system

    def full_after_two(path: Path) -> None:
        flushed.append(path)
        if len(flushed) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(path)

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "BATCH", 3)
        patch.setattr(atomic_batch, "_sync_file_system", full_after_two)
        with pytest.raises(
            UserError, match=r"\.flac: No space left on device; what is finished is kept: free some disk"
        ):
            convert_corpus(source, out)
    assert len(audio_of(out)) == 6
    assert all(soundfile.info(file).frames for file in audio_of(out))
    convert_corpus(source, out)
    assert contents(out) == contents(tmp_path / "undisturbed")


def test_what_a_table_lists_was_flushed_before_and_no_file_has_its_name_earlier(source, tmp_path, monkeypatch):
    out, order = tmp_path / "out", []
    flush, replace = atomic_batch._sync_file_system, os.replace

    def flushed(path: Path) -> None:
        order.append(("flush", {file.name for file in out.rglob(".*.flac.*.tmp")}))
        flush(path)

    def renamed(origin: Path, target: Path) -> None:
        if Path(target).suffix == ".flac":
            order.append(("file", {Path(origin).name}))
        elif Path(target).name in ("wav.scp", "utt2spk", "utt2dur"):
            order.append(("table", set()))
        replace(origin, target)

    monkeypatch.setattr(conversion, "BATCH", 4)
    monkeypatch.setattr(atomic_batch, "_sync_file_system", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    convert_corpus(source, out)
    assert [kind for kind, _ in order] == (
        ["flush"] + ["file"] * 4 + ["flush"] + ["file"] * 4 + ["flush", "file", "flush"] + ["table"] * 3
    )
    safe: set[str] = set()
    for kind, found in order:
        if kind == "flush":
            safe = found
        elif kind == "file":
            assert found <= safe


def run_apart(arguments: Sequence[object], *, setup: str = "") -> subprocess.Popen[str]:
    """convert_corpus(*arguments, jobs=2) in a process group of its own; prints what is finished and its UserError."""
    code = f"""
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        {setup}
        from svtoolkit.data import conversion
        from svtoolkit.errors import UserError
        conversion.BATCH = 2
        if __name__ == "__main__":
            try:
                conversion.convert_corpus(*sys.argv[1:], jobs=2, progress=lambda done: print(done, flush=True))
            except UserError as error:
                sys.exit(f"error: {{error}}")
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@UNIX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_conversion_is_continued_to_the_same_bytes(number, tmp_path):
    source, out = write_source(tmp_path / "source", speakers=4, utterances=12), tmp_path / "out"
    convert_corpus(source, tmp_path / "undisturbed")
    process = run_apart((source, out))
    assert process.stdout is not None
    assert process.stdout.readline() == "2\n"
    if number == signal.SIGKILL:
        os.kill(process.pid, number)  # as the out-of-memory killer does: the workers are left behind
    else:
        os.killpg(os.getpgid(process.pid), number)
    _, errors = process.communicate(timeout=60)  # the pipe ends when the last worker has ended
    assert process.returncode != 0
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    stopped = audio_of(out)
    finished = [file for file in stopped if not file.name.startswith(".")]
    assert 0 < len(finished) < 48
    assert all(
        file.read_bytes() == (tmp_path / "undisturbed" / file.relative_to(out)).read_bytes() for file in finished
    )
    (out / "audio" / "s0" / ".s0-v-1.flac.0123456789abcdef.tmp").write_bytes(b"half a file")
    convert_corpus(source, out)
    assert contents(out) == contents(tmp_path / "undisturbed")


@UNIX
def test_a_disk_that_takes_no_more_tells_so_from_any_process(source, tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))"
    process = run_apart((source, tmp_path / "out"), setup=limit)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith(f"error: {tmp_path}/out/audio/s0/s0-v-")
    assert "File too large; what is finished is kept: free some disk, or see what limits the size of files" in errors


@pytest.mark.usefixtures("forked_workers")
def test_a_process_that_dies_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "BATCH", 1)
    source = write_source(tmp_path / "source", utterances=20)

    def kill_workers(done: int) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(
        UserError, match=r"a process of the conversion was killed, probably because memory ran out; run the same"
    ):
        convert_corpus(source, tmp_path / "out", jobs=2, progress=kill_workers)
    assert len(convert_corpus(source, tmp_path / "out").wav_scp) == 60


@UNIX
def test_two_conversions_do_not_write_at_a_time(source, tmp_path):
    convert_corpus(source, tmp_path / "out")
    with (
        hold_lock(tmp_path / "out" / ".conversion.lock"),
        pytest.raises(UserError, match=r"out: another conversion is writing to the folder; wait for its end"),
    ):
        convert_corpus(source, tmp_path / "out")
    convert_corpus(source, tmp_path / "out")


@UNIX
def test_of_two_that_begin_at_once_one_is_refused(source, tmp_path, monkeypatch):
    claim_folder = conversion.claim_folder

    def claim_while_another_begins(*args: Any, **kwargs: Any) -> None:
        with pytest.raises(UserError, match="another conversion is writing to the folder"):
            convert_corpus(source, tmp_path / "out")
        claim_folder(*args, **kwargs)

    monkeypatch.setattr(conversion, "claim_folder", claim_while_another_begins)
    assert len(convert_corpus(source, tmp_path / "out").wav_scp) == 9


def test_without_locks_it_works_and_leaves_foreign_temporary_files(source, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(file_lock, "fcntl", None)
    convert_corpus(source, tmp_path / "out")
    (tmp_path / "out" / "audio" / "s0" / ".s0-v-1.flac.0123456789abcdef.tmp").write_bytes(b"of another conversion")
    assert len(convert_corpus(source, tmp_path / "out").wav_scp) == 9
    assert len(audio_of(tmp_path / "out")) == 10
    assert caplog.messages == 2 * [
        f"{tmp_path}/out/.conversion.lock: the file system has no locks; see to it that no other process writes there"
    ]
