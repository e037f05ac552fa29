"""A corpus decoded once: every utterance a mono 16-bit file of one rate, which can be read by slice.

Layout: ``<out>/audio/<speaker>/<utterance>.<flac or wav>`` beside the tables of the data directory. What was begun is
gone on with: a file that stands under its name was written whole, flushed and renamed, and is not made again.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from svtoolkit.atomic import atomic_write
from svtoolkit.data.conversion_worker import Converted, Form, Task, convert_all, in_processes
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.m4a import import_av, is_left_to_ffmpeg
from svtoolkit.data.trials import parse_trial, trial_lines
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows, where two conversions into one folder are the user's own affair
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

FORMATS = ("flac", "wav")
BATCH = 32
"""Utterances handed to a process at a time."""
CLAIM = "conversion.json"
"""What the files in the folder are like: others may not be mixed with them."""
BAD_FILES = "bad_files.tsv"
SHOWN = 3
"""Bad files that a message names."""


def convert_corpus(
    source: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    audio_format: str = "flac",
    sample_rate: int = 16000,
    channel: int | None = None,
    jobs: int = 1,
    max_bad: float = 0.001,
    progress: Callable[[int], object] | None = None,
) -> KaldiDir:
    """Decode every utterance of a data directory and write the directory of the files that were made.

    Trial lists are carried over as they are. Utterances that cannot be decoded stand with their reason in
    ``out/bad_files.tsv`` and are left out of the tables; a later run tries them again. Nothing is written below a name
    before it is whole, so that any interruption can be continued with the same call; the result is the same.

    Args:
        source: the data directory; its audio may be of any format that ``open_audio`` reads, m4a included.
        out: folder of the converted directory; may hold a part of the same conversion.
        root: folder that relative paths of ``source`` are taken from; the working directory if None.
        audio_format: ``flac`` or ``wav``, 16 bit, mono.
        sample_rate: of the files, in Hz; others are converted.
        channel: channel of multi-channel files, counted from 0; such files are bad if None.
        jobs: processes; with several, a script must call this under ``if __name__ == "__main__"``.
        max_bad: share of the utterances that may be bad; where it is above 0, one always may.
        progress: called with the number of utterances finished since its last call.

    Returns:
        the converted directory, with durations, paths absolute.

    Raises:
        UserError: impossible options; ``source`` is faulty; ``out`` is ``source`` or holds another conversion, or is
            being written to; PyAV is missing where it is needed; more bad files than ``max_bad``; the disk is full; a
            process died. What was converted is kept.
    """
    _check_options(audio_format, sample_rate, channel, jobs, max_bad)
    target = Path(out).absolute()
    if target.resolve() == Path(source).resolve():
        raise UserError(f"{out}: is the directory that is converted; choose another folder")
    kaldi_dir = KaldiDir.read(source, root)
    tasks = [
        _make_task(kaldi_dir.utterance(utterance_id), target, audio_format)
        for utterance_id in sorted(kaldi_dir.utt2spk)
    ]
    if any(is_left_to_ffmpeg(task.source) for task in tasks):
        import_av()  # once for all of them, before the first
    form = Form(audio_format, sample_rate, channel)
    with _full_disk_explained(), _claimed(target, form) as alone:
        if alone:
            _remove_leftovers(tasks)
        converted = _convert(tasks, form, jobs, max_bad, target, progress)
        return _write_directory(Path(source), target, kaldi_dir.utt2spk, tasks, converted)


def _check_options(audio_format: str, sample_rate: int, channel: int | None, jobs: int, max_bad: float) -> None:
    if audio_format not in FORMATS:
        raise UserError(f"format is {audio_format!r}, expected one of {', '.join(FORMATS)}")
    if sample_rate < 1:
        raise UserError(f"sample_rate is {sample_rate}, expected a rate in Hz such as 16000")
    if channel is not None and channel < 0:
        raise UserError(f"channel is {channel}, expected 0 or more (channels are counted from 0)")
    if jobs < 1:
        raise UserError(f"jobs is {jobs}, expected 1 or more")
    if not 0 <= max_bad <= 1:
        raise UserError(f"max_bad is {max_bad}, expected a share of the files from 0 to 1")


def _make_task(utterance: Utterance, out: Path, audio_format: str) -> Task:
    name = f"{utterance.speaker}/{utterance.utterance_id}"
    if {"", ".", ".."} & set(name.split("/")):
        raise UserError(f"utterance {utterance.utterance_id!r} of speaker {utterance.speaker!r} cannot name a file")
    end = None if utterance.whole_file else utterance.duration
    path = os.path.join(out, "audio", f"{name}.{audio_format}")
    return Task(utterance.utterance_id, str(utterance.path), utterance.offset, end, path)


@contextmanager
def _full_disk_explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(
            f"{error.filename}: {error.strerror}; what was converted is kept: make room, or see what limits the size "
            "of files, and run the same command again"
        ) from error


@contextmanager
def _claimed(out: Path, form: Form) -> Iterator[bool]:
    """Refuse to mix two conversions, in kind or in time; whether it is known that there is no other one."""
    claim, ours, alone = out / CLAIM, json.dumps(asdict(form)), False
    if not claim.is_file():
        with atomic_write(claim) as stream:
            stream.write(f"{ours}\n")
    with claim.open(encoding="utf-8", errors="replace") as stream:
        found = stream.read().strip()
        if found != ours:
            raise UserError(
                f"{claim}: the folder holds a conversion to {found}, now asked for {ours}; choose another folder or "
                "delete this one"
            )
        if fcntl is not None:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError as error:
                raise UserError(
                    f"{out}: another conversion is writing to the folder; wait for its end or choose another folder"
                ) from error
            except OSError as error:  # a file system without locks
                log.debug("%s: cannot be locked: %s", claim, error)
        yield alone


def _remove_leftovers(tasks: Sequence[Task]) -> None:
    """Temporary files of a conversion that was killed."""
    for folder in {os.path.dirname(task.target) for task in tasks}:
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                if name.startswith(".") and name.endswith(".tmp"):
                    os.unlink(os.path.join(folder, name))


def _convert(
    tasks: Sequence[Task],
    form: Form,
    jobs: int,
    max_bad: float,
    out: Path,
    progress: Callable[[int], object] | None,
) -> dict[str, Converted]:
    """Utterance -> what became of it; stops where more are bad than may be."""
    allowed = max(1, math.floor(max_bad * len(tasks))) if max_bad > 0 else 0
    converted: dict[str, Converted] = {}
    bad: list[Converted] = []
    batches = _split(tasks, BATCH)
    finished = (
        (convert_all(batch, form) for batch in batches) if jobs == 1 else in_processes(batches, form, jobs)
    )  # fmt: skip
    try:
        for results in finished:
            for result in results:
                converted[result.utterance_id] = result
                if result.reason is not None:
                    bad.append(result)
            if progress is not None:
                progress(len(results))
            if len(bad) > allowed:
                break
    finally:
        finished.close()  # ends the processes before their folder is let go
        _list_bad(out / BAD_FILES, bad)
    if len(bad) > allowed:
        first = "; ".join(str(result.reason) for result in bad[:SHOWN])
        raise UserError(
            f"{len(bad)} files are bad, with max_bad={max_bad:g} {allowed} of {len(tasks)} may be ({first}); "
            f"{out / BAD_FILES} lists them: repair or drop them, or raise max_bad, and run the same command again, "
            "which keeps what was converted"
        )
    return converted


def _split(tasks: Iterable[Task], size: int) -> Iterator[list[Task]]:
    rest = iter(tasks)
    while batch := list(islice(rest, size)):
        yield batch


def _list_bad(path: Path, bad: Sequence[Converted]) -> None:
    """Columns utterance, file, reason; no file where there is nothing to list."""
    if not bad:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path) as stream:
        stream.write("utterance\tfile\treason\n")
        for result in sorted(bad, key=lambda result: result.utterance_id):
            reason = " ".join((result.reason or "").split())
            stream.write(f"{result.utterance_id}\t{result.source}\t{reason}\n")


def _write_directory(
    source: Path, out: Path, utt2spk: Mapping[str, str], tasks: Sequence[Task], converted: Mapping[str, Converted]
) -> KaldiDir:
    good = {utterance_id: result.seconds for utterance_id, result in converted.items() if result.reason is None}
    if not good:
        raise UserError(f"{source}: none of its {len(tasks)} utterances could be converted; see {out / BAD_FILES}")
    kaldi_dir = KaldiDir(
        wav_scp={task.utterance_id: task.target for task in tasks if task.utterance_id in good},
        utt2spk={utterance_id: utt2spk[utterance_id] for utterance_id in good},
        utt2dur=dict(sorted(good.items())),
    )
    kaldi_dir.write(out)
    lost = converted.keys() - good.keys()
    if lost:
        log.warning("%s: %d of %d utterances are bad and left out", out / BAD_FILES, len(lost), len(tasks))
    for trials in find_trials(source):
        with atomic_write(out / trials.name, "wb") as stream:
            stream.write(trials.read_bytes())
        named = (trial[:2] for _, line in trial_lines(trials) if (trial := parse_trial(line)))
        if lost and any(not lost.isdisjoint(pair) for pair in named):
            log.warning("%s: names utterances that are bad; it cannot be scored as it is", out / trials.name)
    return kaldi_dir
