"""Conversion of a corpus: what the files hold, what becomes of bad ones, and every way to stop it and go on."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from m4a_material import write_m4a
from speech_material import synthesise_voice

from svtoolkit import atomic
from svtoolkit.data import conversion
from svtoolkit.data.audio import convert_rate, read_audio
from svtoolkit.data.conversion import convert_corpus
from svtoolkit.data.conversion_worker import quantise
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

RATE = 16000
HEADER = "utterance\tfile\treason\n"
UNIX = pytest.mark.skipif(os.name != "posix", reason="signals and limits of Unix")


def voice(speaker: int, number: int, seconds: float = 0.3) -> np.ndarray:
    return synthesise_voice(speaker, number, seconds).astype(np.float32)


def write_source(folder: Path, *, speakers: int = 3, utterances: int = 3, extension: str = "wav") -> Path:
    """A data directory of speakers s0, s1, ... of utterances s0-v-0, ..., with trials."""
    kaldi_dir = KaldiDir()
    for speaker in range(speakers):
        for number in range(utterances):
            name = f"s{speaker}-v-{number}"
            path = folder / "original" / f"s{speaker}" / "v" / f"{number}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples = voice(speaker, number, 0.2 + 0.01 * number)
            if extension == "m4a":
                write_m4a(path, samples)
            else:
                soundfile.write(path, samples, RATE)
            kaldi_dir.wav_scp[name] = str(path)
            kaldi_dir.utt2spk[name] = f"s{speaker}"
    kaldi_dir.write(folder)
    (folder / "trials").write_text("s0-v-0 s0-v-1 target\ns0-v-0 s1-v-0 nontarget\n")
    (folder / "trials_O").write_bytes(b"s1-v-0 s1-v-1  target\ns1-v-0 s2-v-0 nontarget")
    return folder


@pytest.fixture
def source(tmp_path) -> Path:
    return write_source(tmp_path / "source")


def contents(out: Path) -> dict[str, bytes]:
    """All files of a converted directory, whose paths are relative to it."""
    found = {}
    for path in sorted(file for file in out.rglob("*") if file.is_file()):
        found[str(path.relative_to(out))] = path.read_bytes().replace(os.fsencode(f"{out}/"), b"<out>/")
    return found


def audio_of(out: Path) -> list[Path]:
    return sorted(file for file in (out / "audio").rglob("*") if file.is_file())


# ---- what is made ----


@pytest.mark.parametrize(("audio_format", "kind"), [("flac", "FLAC"), ("wav", "WAV")])
@pytest.mark.parametrize("jobs", [1, 2])
def test_sixteen_bit_audio_stays_as_it_was(audio_format, kind, jobs, source, tmp_path):
    out = tmp_path / "out"
    done: list[int] = []
    kaldi_dir = convert_corpus(source, out, audio_format=audio_format, jobs=jobs, progress=done.append)
    original = KaldiDir.read(source)
    assert sum(done) == 9
    assert kaldi_dir.utt2spk == original.utt2spk
    for utterance, path in kaldi_dir.wav_scp.items():
        assert path == f"{out}/audio/{utterance[:2]}/{utterance}.{audio_format}"
        info = soundfile.info(path)
        assert (info.format, info.subtype, info.samplerate, info.channels) == (kind, "PCM_16", RATE, 1)
        assert kaldi_dir.utt2dur[utterance] == info.frames / RATE
        expected, _ = soundfile.read(original.wav_scp[utterance], dtype="int16")
        np.testing.assert_array_equal(soundfile.read(path, dtype="int16")[0], expected)
    assert KaldiDir.read(out).utt2dur == kaldi_dir.utt2dur
    for name in ("trials", "trials_O"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert not (out / "bad_files.tsv").exists()
    (source / "trials_O").unlink()
    (out / "trials_O").unlink()
    assert validate(out).faults == []


def test_m4a_becomes_what_read_audio_reads(tmp_path):
    source = write_source(tmp_path / "source", extension="m4a")
    kaldi_dir = convert_corpus(source, tmp_path / "out", jobs=2)
    assert list(kaldi_dir.utt2dur.values()) == pytest.approx([0.2, 0.21, 0.22] * 3)
    for utterance, path in kaldi_dir.wav_scp.items():
        expected = read_audio(KaldiDir.read(source).wav_scp[utterance], sample_rate=RATE)
        np.testing.assert_allclose(read_audio(path, sample_rate=RATE), expected, rtol=0, atol=0.5 / 32768)


def test_another_rate_is_converted_and_a_channel_chosen(tmp_path):
    source, samples = tmp_path / "source", np.stack([voice(1, 0), voice(2, 0)], axis=1)
    source.mkdir()
    soundfile.write(source / "both.wav", samples, 8000, subtype="FLOAT")
    KaldiDir({"a-1": str(source / "both.wav")}, {"a-1": "a"}).write(source)
    kaldi_dir = convert_corpus(source, tmp_path / "out", channel=1)
    expected = convert_rate(np.ascontiguousarray(samples[:, 1]), 8000, RATE)
    np.testing.assert_allclose(
        read_audio(kaldi_dir.wav_scp["a-1"], sample_rate=RATE), expected, rtol=0, atol=0.5 / 32768
    )
    with pytest.raises(UserError, match=r"1 files are bad, .*both\.wav: 2 channels, expected one"):
        convert_corpus(source, tmp_path / "other", max_bad=0)


def test_segments_become_files(source, tmp_path):
    kaldi_dir = KaldiDir.read(source)
    recording = {"rec": kaldi_dir.wav_scp["s0-v-0"]}
    segments = {"s0-a": Segment("rec", 0.05, 0.1), "s0-b": Segment("rec", 0.1, None)}
    KaldiDir(recording, {"s0-a": "s0", "s0-b": "s0"}, segments).write(tmp_path / "cut")
    converted = convert_corpus(tmp_path / "cut", tmp_path / "out")
    whole, _ = soundfile.read(recording["rec"], dtype="int16")
    for name, expected in (("s0-a", whole[800:1600]), ("s0-b", whole[1600:])):
        np.testing.assert_array_equal(soundfile.read(converted.wav_scp[name], dtype="int16")[0], expected)
    assert not (tmp_path / "out" / "segments").exists()
    assert converted.utt2dur == {"s0-a": 0.05, "s0-b": 0.1}


def test_paths_are_taken_from_the_root(source, tmp_path):
    table = (source / "wav.scp").read_text().replace(f"{tmp_path}/", "")
    (source / "wav.scp").write_text(table)
    assert len(convert_corpus(source, tmp_path / "out", root=tmp_path).wav_scp) == 9


def test_ids_with_slashes_become_folders_and_cannot_leave_them(tmp_path):
    soundfile.write(tmp_path / "a.wav", voice(0, 0), RATE)
    source = tmp_path / "source"
    KaldiDir({"a/v/1.wav": str(tmp_path / "a.wav")}, {"a/v/1.wav": "a"}).write(source)
    kaldi_dir = convert_corpus(source, tmp_path / "out")
    assert kaldi_dir.wav_scp["a/v/1.wav"] == f"{tmp_path}/out/audio/a/a/v/1.wav.flac"
    for name in ("../../../escaped", "/absolute", "a//b", "."):
        KaldiDir({name: str(tmp_path / "a.wav")}, {name: "a"}).write(source)
        with pytest.raises(UserError, match="cannot name a file"):
            convert_corpus(source, tmp_path / "out")


@given(st_numpy.arrays(np.int16, st.integers(1, 50)))
def test_every_sixteen_bit_sample_comes_back(steps):
    np.testing.assert_array_equal(quantise((steps / 32768).astype(np.float32)), steps)


def test_what_is_louder_than_full_scale_is_clipped():
    loud = np.array([1.0, 3.0, -1.0, -3.0, 0.99999, 0.4999 / 32768, 0.5001 / 32768], np.float32)
    assert quantise(loud).tolist() == [32767, 32767, -32768, -32768, 32767, 0, 1]


# ---- bad files ----


def break_one(source: Path, name: str = "s1-v-1", content: bytes = b"no audio") -> Path:
    path = Path(KaldiDir.read(source).wav_scp[name])
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_bad_file_may_be_and_is_listed(jobs, source, tmp_path, caplog):
    path = break_one(source)
    kaldi_dir = convert_corpus(source, tmp_path / "out", jobs=jobs)
    assert len(kaldi_dir.wav_scp) == 8
    assert "s1-v-1" not in (tmp_path / "out" / "utt2dur").read_text()
    bad = (tmp_path / "out" / "bad_files.tsv").read_text()
    assert bad.startswith(f"{HEADER}s1-v-1\t{path}\t{path}: cannot be read as audio (")
    assert len(bad.splitlines()) == 2
    assert caplog.messages == [
        f"{tmp_path}/out/bad_files.tsv: 1 of 9 utterances are bad and left out",
        f"{tmp_path}/out/trials_O: names utterances that are bad; it cannot be scored as it is",
    ]
    # Once it is repaired, it is the only one that is made.
    before = {file: file.stat().st_mtime_ns for file in audio_of(tmp_path / "out")}
    soundfile.write(path, voice(1, 1), RATE)
    assert len(convert_corpus(source, tmp_path / "out", jobs=jobs).wav_scp) == 9
    assert not (tmp_path / "out" / "bad_files.tsv").exists()
    assert before.items() <= {file: file.stat().st_mtime_ns for file in audio_of(tmp_path / "out")}.items()


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read as audio"),
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: soundfile.write(path, np.zeros(0), RATE), "holds no sample there"),
        (lambda path: soundfile.write(path, np.full(9, np.nan), RATE, subtype="FLOAT"), "holds samples that are NaN"),
    ],
)
def test_reasons(write, reason, source, tmp_path):
    path = Path(KaldiDir.read(source).wav_scp["s2-v-0"])
    write(path)
    convert_corpus(source, tmp_path / "out")
    assert f"s2-v-0\t{path}\t{path}: {reason}" in (tmp_path / "out" / "bad_files.tsv").read_text()


def test_a_cut_off_m4a_is_bad(tmp_path):
    source = write_source(tmp_path / "source", extension="m4a")
    path = Path(KaldiDir.read(source).wav_scp["s0-v-2"])
    path.write_bytes(path.read_bytes()[:700])
    convert_corpus(source, tmp_path / "out", jobs=2)
    assert "the file is cut off" in (tmp_path / "out" / "bad_files.tsv").read_text()


@pytest.mark.parametrize("jobs", [1, 2])
def test_more_bad_files_than_may_be(jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "BATCH", 4)
    source, out = write_source(tmp_path / "source", utterances=20), tmp_path / "out"
    broken = [break_one(source, f"s0-v-{number}") for number in (0, 1, 12, 13, 2)]
    with pytest.raises(UserError) as error:
        convert_corpus(source, out, jobs=jobs, max_bad=0.05)
    message = str(error.value)
    assert message.startswith("4 files are bad, with max_bad=0.05 3 of 60 may be (")
    assert message.count("cannot be read as audio") == 3
    assert f"{out}/bad_files.tsv lists them: repair or drop them" in message
    assert [line.split("\t")[1] for line in (out / "bad_files.tsv").read_text().splitlines()[1:]] == list(
        map(str, broken[:4])
    )
    made = audio_of(out)
    assert 0 < len(made) < 55
    assert not (out / "wav.scp").exists()
    # Nothing is lost: with the ceiling raised it goes on.
    before = {file: file.stat().st_mtime_ns for file in made}
    assert len(convert_corpus(source, out, jobs=jobs, max_bad=0.1).wav_scp) == 55
    assert before.items() <= {file: file.stat().st_mtime_ns for file in audio_of(out)}.items()


def test_the_ceiling(source, tmp_path):
    break_one(source, "s0-v-0")
    with pytest.raises(UserError, match=r"^1 files are bad, with max_bad=0 0 of 9 may be"):
        convert_corpus(source, tmp_path / "out", max_bad=0)
    break_one(source, "s0-v-1")
    with pytest.raises(UserError, match=r"^2 files are bad, with max_bad=0\.001 1 of 9 may be"):
        convert_corpus(source, tmp_path / "other")


def test_nothing_but_bad_files(source, tmp_path):
    for utterance in KaldiDir.read(source).wav_scp:
        break_one(source, utterance)
    with pytest.raises(UserError, match=r"source: none of its 9 utterances could be converted; see .*/bad_files\.tsv"):
        convert_corpus(source, tmp_path / "out", max_bad=1)


# ---- stopped and continued ----


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
    fsync = os.fsync

    def full_after_ten(descriptor: int) -> None:
        flushed.append(descriptor)
        if len(flushed) > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full_after_ten)
        with pytest.raises(UserError, match=r"\.flac: No space left on device; what was converted is kept: make room"):
            convert_corpus(source, out)
    assert 0 < len(audio_of(out)) < 9
    assert all(soundfile.info(file).frames for file in audio_of(out))
    convert_corpus(source, out)
    assert contents(out) == contents(tmp_path / "undisturbed")


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
    assert "File too large; what was converted is kept: make room, or see what limits the size of files" in errors


def test_a_process_that_dies_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "BATCH", 1)
    source = write_source(tmp_path / "source", utterances=20)

    def kill_workers(done: int) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(
        UserError, match=r"a process of the conversion was killed, perhaps for want of memory; run the same"
    ):
        convert_corpus(source, tmp_path / "out", jobs=2, progress=kill_workers)
    assert len(convert_corpus(source, tmp_path / "out").wav_scp) == 60


# ---- mistakes ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audio_format": "mp3"}, "format is 'mp3', expected one of flac, wav"),
        ({"sample_rate": 0}, "sample_rate is 0, expected a rate in Hz such as 16000"),
        ({"channel": -1}, "channel is -1, expected 0 or more"),
        ({"jobs": 0}, "jobs is 0, expected 1 or more"),
        ({"max_bad": 1.5}, "max_bad is 1.5, expected a share of the files from 0 to 1"),
    ],
)
def test_impossible_options(options, message, source, tmp_path):
    with pytest.raises(UserError, match=message):
        convert_corpus(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_source_is_not_overwritten(source):
    before = contents(source)
    with pytest.raises(UserError, match="is the directory that is converted; choose another folder"):
        convert_corpus(source, source / ".." / "source")
    assert contents(source) == before


def test_two_kinds_of_conversion_are_not_mixed(source, tmp_path):
    convert_corpus(source, tmp_path / "out", sample_rate=8000)
    assert json.loads((tmp_path / "out" / "conversion.json").read_text()) == {
        "format": "flac", "sample_rate": 8000, "channel": None,
    }  # fmt: skip
    with pytest.raises(
        UserError, match=r"conversion\.json: the folder holds a conversion to .* 8000.* now asked for .* 16000"
    ):
        convert_corpus(source, tmp_path / "out")


@UNIX
def test_two_conversions_do_not_write_at_a_time(source, tmp_path):
    import fcntl

    convert_corpus(source, tmp_path / "out")
    with (tmp_path / "out" / "conversion.json").open() as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"out: another conversion is writing to the folder; wait for its end"):
            convert_corpus(source, tmp_path / "out")


def test_without_locks_it_works_and_leaves_foreign_temporary_files(source, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "fcntl", None)
    convert_corpus(source, tmp_path / "out")
    (tmp_path / "out" / "audio" / "s0" / ".s0-v-1.flac.0123456789abcdef.tmp").write_bytes(b"of another conversion")
    assert len(convert_corpus(source, tmp_path / "out").wav_scp) == 9
    assert len(audio_of(tmp_path / "out")) == 10


def test_without_pyav_m4a_is_refused_before_anything_is_written(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    convert_corpus(source, tmp_path / "wav")
    table = (source / "wav.scp").read_text().replace("s2/v/1.wav", "s2/v/1.m4a")
    (source / "wav.scp").write_text(table)
    with pytest.raises(
        UserError, match=r"PyAV, which is not installed: install it with `pip install svtoolkit\[voxceleb\]`"
    ):
        convert_corpus(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
