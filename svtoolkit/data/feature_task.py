"""One archive of features: what a process computes at a time, and the record by which a later run knows it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.shards.location import parse_location
from svtoolkit.config import ComputeFeaturesConfig
from svtoolkit.data.bad_files import BadFile
from svtoolkit.data.feature_archive import write_features
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write

if TYPE_CHECKING:
    from svtoolkit.features import FrontEnd

log = logging.getLogger(__name__)

RECORDS = ".features"
"""Folder of the records inside the directory that is written; not needed to read it."""


@dataclass(frozen=True)
class FeatureEntry:
    """Features of one utterance: offset in the archive, number of frames, length of the audio in seconds."""

    offset: int
    frames: int
    seconds: float


@dataclass
class FeatureRecord:
    """What an archive holds.

    Attributes:
        size: bytes of the archive; 0 where no utterance was left and none was written.
        entries: utterance -> where its features lie.
        bad: utterances left out.
    """

    size: int = 0
    entries: dict[str, FeatureEntry] = field(default_factory=dict)
    bad: list[BadFile] = field(default_factory=list)


@dataclass(frozen=True)
class FeatureTask:
    """The utterances of one archive.

    Attributes:
        build: makes the front end, in whichever process.
        bad_allowed: bad files above which all of the work fails, so that the task can stop.
    """

    out: Path
    number: int
    utterances: tuple[Utterance, ...]
    settings: ComputeFeaturesConfig
    build: Callable[[], FrontEnd]
    bad_allowed: int

    @property
    def archive(self) -> Path:
        return self.out / f"feats-{self.number:06d}.ark"

    @property
    def record(self) -> Path:
        return self.out / RECORDS / f"feats-{self.number:06d}.json"


def make_archive(task: FeatureTask) -> FeatureRecord:
    """Write the archive, then its record; both are whole or not there.

    One thread computes, so that the bytes do not depend on how many there are.

    Returns:
        what the archive holds. With more bad files than are allowed, nothing is written.
    """
    import torch

    made = FeatureRecord()
    task.record.unlink(missing_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        front_end = task.build()
        with atomic_write(task.archive, "wb") as stream:
            for utterance in task.utterances:
                try:
                    frames, seconds = compute_frames(utterance, front_end, task.settings)
                except UserError as error:
                    made.bad.append(BadFile(utterance.utterance_id, str(utterance.path), str(error)))
                    if len(made.bad) > task.bad_allowed:
                        raise _NotWrittenError from error
                    continue
                offset = write_features(stream, utterance.utterance_id, frames, task.settings.format)
                made.entries[utterance.utterance_id] = FeatureEntry(offset, len(frames), seconds)
            if not made.entries:
                raise _NotWrittenError
            made.size = stream.tell()
    except _NotWrittenError:
        task.archive.unlink(missing_ok=True)
        if len(made.bad) > task.bad_allowed:
            return made
    finally:
        torch.set_num_threads(threads)
    with atomic_write(task.record) as stream:
        json.dump(asdict(made), stream, ensure_ascii=False)
    return made


def compute_frames(
    utterance: Utterance, front_end: FrontEnd, settings: ComputeFeaturesConfig
) -> tuple[np.ndarray, float]:
    """Features of a whole utterance before any mean is removed, float32 (frames, bins), and its length in seconds.

    Raises:
        UserError: audio that is missing, unreadable, of another rate or with several channels and none chosen; shorter
            than one window; samples, or features in the format asked for, that are not finite.
    """
    import torch

    samples = read_audio(
        utterance.path,
        sample_rate=front_end.sample_rate,
        start=utterance.offset,
        duration=None if utterance.whole_file else utterance.duration,
        channel=settings.channel,
        resample=settings.resample,
    )
    if front_end.num_frames(len(samples)) < 1:
        raise UserError(
            f"{utterance.path}: {len(samples)} samples are shorter than one window of {front_end.num_samples(1)}; drop "
            "the utterance"
        )
    with torch.inference_mode():
        frames = front_end.frames(torch.from_numpy(samples).unsqueeze(0))[0].numpy()
    as_stored = frames.astype(np.float16) if settings.format == "float16" else frames
    if not np.isfinite(as_stored).all():
        raise UserError(f"{utterance.path}: gives features that are NaN or infinite; re-create the file or drop it")
    return frames, len(samples) / front_end.sample_rate


def read_record(task: FeatureTask) -> FeatureRecord | None:
    """The record of an archive that is whole and made of these utterances as they are; None, with a warning, if not."""
    if not task.record.is_file():
        return None
    try:
        plain = json.loads(task.record.read_text(encoding="utf-8"))
        found = FeatureRecord(
            plain["size"],
            {utterance: FeatureEntry(**entry) for utterance, entry in plain["entries"].items()},
            [BadFile(**bad) for bad in plain["bad"]],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("%s: is no record of an archive; the archive is made again", task.record)
        return None
    size = task.archive.stat().st_size if task.archive.is_file() else 0
    if {item.utterance_id for item in task.utterances} != {*found.entries, *(item.utterance_id for item in found.bad)}:
        log.warning("%s: is the record of other utterances; the archive is made again", task.record)
        return None
    if size != found.size:
        log.warning("%s: has %d bytes, was written with %d; it is made again", task.archive, size, found.size)
        return None
    changed = _changed_since(task.archive.stat().st_mtime_ns, task.utterances) if size else None
    if changed is not None:
        log.warning("%s: is older than %s; it is made again", task.archive, changed)
        return None
    return found


def _changed_since(moment: int, utterances: Sequence[Utterance]) -> str | None:
    """An audio file, or shard, that was written after a moment (nanoseconds); None: there is none that is there."""
    shards = (parse_location(utterance.path) for utterance in utterances)
    for path in dict.fromkeys(
        str(utterance.path) if shard is None else shard.archive
        for utterance, shard in zip(utterances, shards, strict=True)
    ):
        try:
            if os.stat(path).st_mtime_ns > moment:
                return path
        except OSError:
            continue
    return None


class _NotWrittenError(Exception):
    """Leaves the archive that is being written without giving it its name."""
