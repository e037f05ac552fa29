"""A corpus decoded once: every utterance a mono 16-bit file of one rate, which can be read by slice.

Layout: ``<out>/audio/<speaker>/<utterance>.<flac or wav>`` beside the tables of the data directory. A stopped
conversion is resumed: a file that is there was written whole, flushed (with those of its batch) and renamed, and is not
made again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from svtoolkit.audio.m4a import import_av, is_left_to_ffmpeg
from svtoolkit.audio.pipes import is_pipe
from svtoolkit.config import ConvertConfig
from svtoolkit.data.bad_files import BAD_FILES, BadFile, check_max_bad, listing_bad_files
from svtoolkit.data.conversion_worker import Converted, Outcome, Task, convert_all
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.tables import read_table, write_table
from svtoolkit.data.trials import parse_trials
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.atomic_batch import sync_file_systems
from svtoolkit.system.output_folder import claim_folder, explain_full_disk, hold_alone, remove_leftovers
from svtoolkit.system.processes import worker_processes
from svtoolkit.system.threads import submit_ahead

log = logging.getLogger(__name__)

FORMATS = ("flac", "wav")
BATCH = 64
"""Utterances handed to a process at a time, and flushed to the disk together."""
AHEAD = 2
"""Batches that wait for each process: a million utterances need no thirty thousand futures."""
AUDIO = "audio"
"""Folder of the files."""
CLAIM = "conversion.json"
"""What the files in the folder are like: others may not be mixed with them."""
ORIGINS = "utt2source"
"""Which audio the file of each utterance was made of."""
LOCK = ".conversion.lock"
"""Held by the conversion that fills the folder."""


def convert_corpus(
    source: str | Path, out: str | Path, *, progress: Callable[[int], object] | None = None, **options: Any
) -> KaldiDir:
    """Decode every utterance of a data directory and write the directory of the files that were made.

    Trial lists are carried over as they are. Utterances that cannot be decoded are listed with their reason
    in ``out/bad_files.tsv`` and left out of the tables; a later run tries them again. A file gets its name
    when it is whole, so that after any interruption the same call resumes the work, with the same result. What was
    converted before is kept, unless ``source`` now names other audio for it, or audio that was changed since.

    Args:
        source: the data directory; its audio may be of any format that ``open_audio`` reads, m4a included.
        out: folder of the converted directory; may hold a part of the same conversion.
        progress: called with the number of utterances finished since its last call.
        options: other fields of ``ConvertConfig``, such as ``sample_rate``; with several ``jobs``, a script must call
            this under ``if __name__ == "__main__"``.

    Returns:
        the converted directory, with durations, paths absolute.

    Raises:
        UserError: impossible options; ``source`` is faulty; ``out`` is ``source`` or holds another conversion, or is
            being written to; PyAV is missing where it is needed; more bad files than ``max_bad``; the disk is full; a
            process died. What was converted is kept.
    """
    config = ConvertConfig(str(source), str(out), **options)
    _check_options(config)
    target = Path(out).absolute()
    if target.resolve() == Path(source).resolve():
        raise UserError(f"{out}: is the directory that is converted; choose another folder")
    kaldi_dir = KaldiDir.read(source, config.root, pipes=config.run_pipes)
    tasks = [_make_task(utterance, kaldi_dir, target, config.format) for utterance in kaldi_dir.utterances()]
    if any(is_left_to_ffmpeg(task.source) for task in tasks):
        import_av()  # once for all of them, before the first
    form = {name: getattr(config, name) for name in ("format", "sample_rate", "channel")}
    busy = f"{target}: another conversion is writing to the folder; wait for its end or choose another folder"
    with explain_full_disk(target):
        target.mkdir(parents=True, exist_ok=True)
        with hold_alone(target / LOCK, busy=busy) as alone:
            is_empty = alone and not any(path.is_file() for path in (target / AUDIO).rglob("*"))
            claim_folder(target / CLAIM, form, content="a conversion to", is_empty=is_empty)
            if alone:
                remove_leftovers({os.path.dirname(task.target) for task in tasks})
            _drop_others(target / ORIGINS, tasks)
            seconds, bad = _convert(tasks, config, target, progress)
            return _write_directory(Path(source), target, kaldi_dir.utt2spk, tasks, seconds, bad)


def _check_options(config: ConvertConfig) -> None:
    if config.format not in FORMATS:
        raise UserError(f"format is {config.format!r}, expected one of {', '.join(FORMATS)}")
    if config.sample_rate < 1:
        raise UserError(f"sample_rate is {config.sample_rate}, expected a rate in Hz such as 16000")
    if config.channel is not None and config.channel < 0:
        raise UserError(f"channel is {config.channel}, expected 0 or more (channels are counted from 0)")
    if config.jobs < 1:
        raise UserError(f"jobs is {config.jobs}, expected 1 or more")
    check_max_bad(config.max_bad, of="files")


def _make_task(utterance: Utterance, kaldi_dir: KaldiDir, out: Path, audio_format: str) -> Task:
    name = f"{utterance.speaker}/{utterance.utterance_id}"
    if {"", ".", ".."} & set(name.split("/")):
        raise UserError(f"utterance {utterance.utterance_id!r} of speaker {utterance.speaker!r} cannot name a file")
    end = None if utterance.whole_file else utterance.duration
    path = os.path.join(out, AUDIO, f"{name}.{audio_format}")
    segment = kaldi_dir.segments.get(utterance.utterance_id)
    location = kaldi_dir.wav_scp[segment.recording if segment else utterance.utterance_id]
    audio = location if is_pipe(location) else str(utterance.path)
    return Task(utterance.utterance_id, audio, utterance.offset, end, path)


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
    config: ConvertConfig,
    out: Path,
    progress: Callable[[int], object] | None,
) -> tuple[dict[str, float], list[BadFile]]:
    """Length in seconds of each utterance that was converted, and the others; stops where more are bad than may be."""
    seconds: dict[str, float] = {}
    batches = [tasks[begin : begin + BATCH] for begin in range(0, len(tasks), BATCH)]
    with (
        listing_bad_files(out, len(tasks), config.max_bad) as bad,
        closing(_finish_batches(batches, config)) as finished,
    ):
        for results in finished:
            seconds |= {result.utterance_id: result.seconds for result in results if isinstance(result, Converted)}
            if progress is not None:
                progress(len(results))
            bad.add(result for result in results if isinstance(result, BadFile))
    return seconds, bad.found


def _finish_batches(batches: Iterable[Sequence[Task]], config: ConvertConfig) -> Generator[list[Outcome], None, None]:
    """What became of each batch, in their order; closing the generator ends the processes.

    Raises:
        UserError: a process was killed.
    """
    if config.jobs == 1:
        yield from (convert_all(batch, config) for batch in batches)
        return
    killed = (
        "a process of the conversion was killed, probably because memory ran out; run the same command again, which "
        "keeps what was converted, with fewer jobs if it happens again"
    )
    with worker_processes(config.jobs, killed=killed) as workers:
        yield from submit_ahead(workers, partial(convert_all, form=config), batches, AHEAD * config.jobs)


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
    sync_file_systems([out])  # the names of the files, which the tables are about to list
    kaldi_dir.write(out)
    lost = {item.utterance_id for item in bad}
    if lost:
        log.warning("%s: %d of %d utterances are bad and left out", out / BAD_FILES, len(lost), len(tasks))
    for trials in find_trials(source):
        with atomic_write(out / trials.name, "wb") as stream:
            stream.write(trials.read_bytes())
        named = (trial[:2] for _, _, trial in parse_trials(trials) if not isinstance(trial, str))
        if lost and any(not lost.isdisjoint(pair) for pair in named):
            log.warning("%s: names utterances that are bad; it cannot be scored as it is", out / trials.name)
    return kaldi_dir
