"""What a process of a conversion does: decode utterances and write them, one file each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import soundfile

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.pcm16 import SUBTYPE, encode_pcm16
from svtoolkit.audio.pipes import is_pipe, read_pipe
from svtoolkit.config import ConvertConfig
from svtoolkit.data.bad_files import BadFile
from svtoolkit.errors import UserError
from svtoolkit.system.atomic_batch import Write, atomic_batch


class Task(NamedTuple):
    """One utterance: ``duration`` seconds (None: to the end) from ``start`` of ``source`` become ``target``."""

    utterance_id: str
    source: str
    start: float
    duration: float | None
    target: str

    @property
    def origin(self) -> str:
        """The audio on one line."""
        if self.duration is None and not self.start:
            return self.source
        return f"{self.source} from {self.start} s, {'to the end' if self.duration is None else f'{self.duration} s'}"


class Converted(NamedTuple):
    """An utterance whose file is there, and its length."""

    utterance_id: str
    seconds: float


Outcome = Converted | BadFile


def convert_all(tasks: Sequence[Task], form: ConvertConfig) -> list[Outcome]:
    """Convert some utterances, whose files are flushed together before they get their names.

    Those whose file is there, and newer than its source, are measured alone.

    Raises:
        OSError: a file cannot be written; those that could be are kept.
    """
    with atomic_batch() as write:
        return [_convert(task, form, write) for task in tasks]


def _convert(task: Task, form: ConvertConfig, write: Write) -> Outcome:
    seconds = _measure(task.target, form)
    if seconds is not None and not _is_newer(task.source, task.target):
        return Converted(task.utterance_id, seconds)
    try:
        samples = _read(task, form)
    except UserError as error:
        return BadFile(task.utterance_id, task.source, str(error))
    if not len(samples) or not np.isfinite(samples).all():
        found = "holds samples that are NaN or infinite" if len(samples) else "holds no sample there"
        return BadFile(task.utterance_id, task.source, f"{task.source}: {found}; re-create the file or drop it")
    write(task.target, encode_pcm16(samples, form.sample_rate, form.format))
    return Converted(task.utterance_id, len(samples) / form.sample_rate)


def _read(task: Task, form: ConvertConfig) -> np.ndarray:
    if is_pipe(task.source):
        read: Callable[..., np.ndarray] = partial(read_pipe, folder=form.root)
    else:
        read = partial(read_audio, resample=True)
    return read(
        task.source, sample_rate=form.sample_rate, start=task.start, duration=task.duration, channel=form.channel
    )


def _measure(path: str, form: ConvertConfig) -> float | None:
    """Length in seconds by the header; None where there is no such file, or one that is not ours."""
    if not os.path.isfile(path):
        return None
    try:
        info = soundfile.info(path)
    except (soundfile.SoundFileError, OSError):
        return None
    ours = (info.samplerate, info.channels, info.subtype) == (form.sample_rate, 1, SUBTYPE)
    return info.frames / info.samplerate if ours and info.frames else None


def _is_newer(source: str, target: str) -> bool:
    """Whether the source was written after the file that was made of it; one that is gone was not."""
    try:
        return os.stat(source).st_mtime_ns > os.stat(target).st_mtime_ns
    except OSError:
        return False
