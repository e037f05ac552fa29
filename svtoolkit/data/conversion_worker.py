"""What a process of a conversion does: decode utterances and write them, one file each."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import soundfile

from svtoolkit.atomic import atomic_write
from svtoolkit.data.audio import read_audio
from svtoolkit.errors import UserError

AHEAD = 2
"""Batches that wait for each process: a million utterances need no thirty thousand futures."""


@dataclass(frozen=True)
class Form:
    """What the files are to be like; the names are those of the options of ``svt convert``."""

    format: str
    sample_rate: int
    channel: int | None


class Task(NamedTuple):
    """One utterance: ``duration`` seconds (None: to the end) from ``start`` of ``source`` become ``target``."""

    utterance_id: str
    source: str
    start: float
    duration: float | None
    target: str


class Converted(NamedTuple):
    """What became of it: its length, or the reason why it is bad."""

    utterance_id: str
    source: str
    seconds: float
    reason: str | None


Finished = Generator[list[Converted], None, None]


def convert_all(tasks: Sequence[Task], form: Form) -> list[Converted]:
    """Convert some utterances; those whose file is there are measured alone.

    Raises:
        OSError: a file cannot be written.
    """
    return [_convert(task, form) for task in tasks]


def in_processes(batches: Iterable[Sequence[Task]], form: Form, jobs: int) -> Finished:
    """The same with ``jobs`` processes; results in the order of the batches.

    Raises:
        OSError: as there.
        UserError: a process died.
    """
    # spawn: a forked child would inherit the threads of the caller.
    executor = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_obey_parent_alone)
    pending: deque[Future[list[Converted]]] = deque()
    try:
        for batch in batches:
            with _interrupts_held():
                pending.append(executor.submit(convert_all, batch, form))
            if len(pending) > AHEAD * jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process of the conversion was killed, perhaps for want of memory; run the same command again, which "
            "keeps what was converted, with fewer jobs if it happens again"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: a process that is started there must not die of it on its way."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _obey_parent_alone() -> None:
    """Ctrl-C reaches all processes; the parent answers it, and the others end with the batch in hand, or with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _convert(task: Task, form: Form) -> Converted:
    seconds = _measure(task.target, form)
    if seconds is not None:
        return Converted(task.utterance_id, task.source, seconds, None)
    try:
        samples = read_audio(
            task.source,
            sample_rate=form.sample_rate,
            start=task.start,
            duration=task.duration,
            channel=form.channel,
            resample=True,
        )
    except UserError as error:
        return Converted(task.utterance_id, task.source, 0.0, str(error))
    if not len(samples) or not np.isfinite(samples).all():
        found = "holds samples that are NaN or infinite" if len(samples) else "holds no sample there"
        return Converted(task.utterance_id, task.source, 0.0, f"{task.source}: {found}; re-create the file or drop it")
    encoded = io.BytesIO()
    soundfile.write(encoded, quantise(samples), form.sample_rate, format=form.format.upper(), subtype="PCM_16")
    with atomic_write(task.target, "wb") as stream:
        stream.write(encoded.getbuffer())
    return Converted(task.utterance_id, task.source, len(samples) / form.sample_rate, None)


def quantise(samples: np.ndarray) -> np.ndarray:
    """float32 in [-1, 1] -> int16, to the nearest step; 16-bit samples come back as they were, louder ones clipped."""
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)


def _measure(path: str, form: Form) -> float | None:
    """Length in seconds by the header; None where there is no such file, or one that is not ours."""
    if not os.path.isfile(path):
        return None
    try:
        info = soundfile.info(path)
    except (soundfile.SoundFileError, OSError):
        return None
    ours = (info.samplerate, info.channels, info.subtype) == (form.sample_rate, 1, "PCM_16")
    return info.frames / info.samplerate if ours and info.frames else None
