"""One archive of features: what a process computes at a time, and the record by which a later run knows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.shards.location import parse_location
from svtoolkit.config import ComputeFeaturesConfig
from svtoolkit.data.archive_writer import ArchiveKind, ArchiveRecord, ArchiveTask, write_archive
from svtoolkit.data.audio_table import AUDIO_TABLES, FEATURES
from svtoolkit.data.bad_files import BadFile
from svtoolkit.data.feature_archive import write_features
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError

if TYPE_CHECKING:
    from svtoolkit.features import FrontEnd

ARCHIVES = ArchiveKind(
    unit="archive",
    content="features",
    work="computing features",
    records=".features",
    stem="feats",
    extension="ark",
    last=FEATURES,
    foreign=(*AUDIO_TABLES.values(), "segments"),
)


@dataclass(frozen=True)
class FeatureEntry:
    """Features of one utterance: offset in the archive, number of frames, length of the audio in seconds."""

    offset: int
    frames: int
    seconds: float


@dataclass
class FeatureRecord(ArchiveRecord[FeatureEntry]):
    """What an archive holds."""

    entry_type = FeatureEntry


@dataclass(frozen=True)
class FeatureTask(ArchiveTask):
    """The utterances of one archive.

    Attributes:
        build: makes the front end, in whichever process.
    """

    kind = ARCHIVES
    record_type = FeatureRecord

    settings: ComputeFeaturesConfig
    build: Callable[[], FrontEnd]

    def newer_source(self) -> str | None:
        """An audio file, or shard, that was written after the archive."""
        moment = self.archive.stat().st_mtime_ns
        shards = (parse_location(utterance.path) for utterance in self.utterances)
        for path in dict.fromkeys(
            str(utterance.path) if shard is None else shard.archive
            for utterance, shard in zip(self.utterances, shards, strict=True)
        ):
            try:
                if os.stat(path).st_mtime_ns > moment:
                    return path
            except OSError:
                continue
        return None


def make_archive(task: FeatureTask) -> FeatureRecord:
    """Write the archive, then its record; both are whole or not there.

    One thread computes, so that the bytes do not depend on how many there are.
    """
    import torch

    made = FeatureRecord()

    def fill(stream: IO[bytes]) -> Iterator[None]:
        front_end = task.build()
        for utterance in task.utterances:
            name = utterance.utterance_id
            try:
                frames, seconds = compute_frames(utterance, front_end, task.settings)
            except UserError as error:
                made.bad.append(BadFile(name, str(utterance.path), str(error)))
            else:
                offset = write_features(stream, name, frames, task.settings.format)
                made.entries[name] = FeatureEntry(offset, len(frames), seconds)
            yield
        made.size = stream.tell()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return write_archive(task, made, fill)
    finally:
        torch.set_num_threads(threads)


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
