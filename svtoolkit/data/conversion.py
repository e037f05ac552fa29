"""A corpus decoded once: every utterance a mono 16-bit file of one rate, which can be read by slice.

Layout: ``<out>/audio/<speaker>/<utterance>.<flac or wav>`` beside the tables of the data directory. A stopped
conversion is resumed: a file that is there was written whole, flushed and renamed, and is not made again.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from svtoolkit.audio.m4a import import_av, is_left_to_ffmpeg
from svtoolkit.data.bad_files import BAD_FILES, BadFile, listing_bad_files
from svtoolkit.data.conversion_worker import Converted, Form, Outcome, Task, convert_all
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.tables import read_table, write_table
from svtoolkit.data.trials import parse_trial, trial_lines
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.output_folder import claim_folder, explain_full_disk, hold_alone, remove_leftovers
from svtoolkit.system.processes import worker_processes

log = logging.getLogger(__name__)

FORMATS = ("flac", "wav")
BATCH = 32
"""Utterances handed to a process at a time."""
AHEAD = 2
"""Batches that wait for each process: a million utterances need no thirty thousand futures."""
CLAIM = "conversion.json"
"""What the files in the folder are like: others may not be mixed with them."""
ORIGINS = "utt2source"
"""Which audio the file of each utterance was made of."""
LOCK = ".conversion.lock"
"""Held by the conversion that fills the folder."""


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

    Trial lists are carried over as they are. Utterances that cannot be decoded are listed with their reason
    in ``out/bad_files.tsv`` and left out of the tables; a later run tries them again. A file gets its name
    when it is whole, so that after any interruption the same call resumes the work, with the same result. What was
    converted before is kept, unless ``source`` now names other audio for it, or audio that was changed since.

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
    busy = f"{target}: another conversion is writing to the folder; wait for its end or choose another folder"
    with explain_full_disk(target):
        target.mkdir(parents=True, exist_ok=True)
        with hold_alone(target / LOCK, busy=busy) as alone:
            claim_folder(target / CLAIM, asdict(form), content="a conversion to")
            if alone:
                remove_leftovers({os.path.dirname(task.target) for task in tasks})
            _drop_others(target / ORIGINS, tasks)
            seconds, bad = _convert(tasks, form, jobs, max_bad, target, progress)
            return _write_directory(Path(source), target, kaldi_dir.utt2spk, tasks, seconds, bad)


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


def _drop_others(origins: Path, tasks: Sequence[Task]) -> None:
    """Delete files of an earlier conversion that were made of other audio than is asked for now."""
    before = {utterance_id: value for utterance_id, (_, value) in read_table(origins, []).items()}
    now = {task.utterance_id: task.origin for task in tasks}
    for task in tasks:
        if before.get(task.utterance_id, task.origin) != task.origin:
            Path(task.target).unlink(missing_ok=True)
    merged = before | now
    if merged != before:
        write_table(origins, merged)


def _convert(
    tasks: Sequence[Task],
    form: Form,
    jobs: int,
    max_bad: float,
    out: Path,
    progress: Callable[[int], object] | None,
) -> tuple[dict[str, float], list[BadFile]]:
    """Length in seconds of each utterance that was converted, and the others; stops where more are bad than may be."""
    seconds: dict[str, float] = {}
    with (
        listing_bad_files(out, len(tasks), max_bad) as bad,
        closing(_finish_batches(_split(tasks, BATCH), form, jobs)) as finished,
    ):
        for results in finished:
            seconds |= {result.utterance_id: result.seconds for result in results if isinstance(result, Converted)}
            if progress is not None:
                progress(len(results))
            bad.add(result for result in results if isinstance(result, BadFile))
    return seconds, bad.found


def _finish_batches(batches: Iterable[Sequence[Task]], form: Form, jobs: int) -> Generator[list[Outcome], None, None]:
    """What became of each batch, in their order; closing the generator ends the processes.

    Raises:
        UserError: a process was killed.
    """
    if jobs == 1:
        yield from (convert_all(batch, form) for batch in batches)
        return
    killed = (
        "a process of the conversion was killed, probably because memory ran out; run the same command again, which "
        "keeps what was converted, with fewer jobs if it happens again"
    )
    pending: deque[Future[list[Outcome]]] = deque()
    with worker_processes(jobs, killed=killed) as workers:
        for batch in batches:
            pending.append(workers.submit(convert_all, batch, form))
            if len(pending) > AHEAD * jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _split(tasks: Iterable[Task], size: int) -> Iterator[list[Task]]:
    rest = iter(tasks)
    while batch := list(islice(rest, size)):
        yield batch


def _write_directory(
    source: Path,
    out: Path,
    utt2spk: Mapping[str, str],
    tasks: Sequence[Task],
    seconds: Mapping[str, float],
    bad: Sequence[BadFile],
) -> KaldiDir:
    if not seconds:
        raise UserError(f"{source}: none of its {len(tasks)} utterances could be converted; see {out / BAD_FILES}")
    kaldi_dir = KaldiDir(
        wav_scp={task.utterance_id: task.target for task in tasks if task.utterance_id in seconds},
        utt2spk={utterance_id: utt2spk[utterance_id] for utterance_id in seconds},
        utt2dur=dict(sorted(seconds.items())),
    )
    kaldi_dir.write(out)
    lost = {item.utterance_id for item in bad}
    if lost:
        log.warning("%s: %d of %d utterances are bad and left out", out / BAD_FILES, len(lost), len(tasks))
    for trials in find_trials(source):
        with atomic_write(out / trials.name, "wb") as stream:
            stream.write(trials.read_bytes())
        named = (trial[:2] for _, line in trial_lines(trials) if (trial := parse_trial(line)))
        if lost and any(not lost.isdisjoint(pair) for pair in named):
            log.warning("%s: names utterances that are bad; it cannot be scored as it is", out / trials.name)
    return kaldi_dir
