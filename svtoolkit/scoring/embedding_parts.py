"""Embeddings as they are made: appended to a journal beside the result, so that a stopped extraction is resumed.

Layout: `<out>.parts/`, with the vectors one after the other in `vectors.f32`, a line of `journal.jsonl` for every few
of them, and what they are made of in `made_of.json`. A line is written when its vectors are on the disk; what a kill
leaves after the last whole line is cut off. In memory is where the vector of each utterance lies, 8 MB of a million.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from svtoolkit.data.feature_archive import archive_of
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.scoring.extracted import Embedded
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.file_lock import delete_lock
from svtoolkit.system.output_folder import explain_full_disk, hold_alone

log = logging.getLogger(__name__)

SECONDS = 30.0
"""Of work that a kill may cost."""
VECTORS, JOURNAL, MADE_OF, LOCK = "vectors.f32", "journal.jsonl", "made_of.json", "lock"
NOT_THERE = -1


class Extractor(Protocol):
    """What embeds: ``EmbeddingExtractor``, or ``RuntimeExtractor`` of exported files.

    Attributes:
        stored: utterances are listed by their features.
        batch_seconds: audio that utterances go together by.
        limit: audio that is taken at once.
    """

    stored: bool
    batch_seconds: float
    limit: float

    def embed(self, utterances: Sequence[Utterance], is_done: Callable[[int], bool]) -> Iterator[Embedded]: ...


@dataclass
class EmbeddingParts:
    """What is embedded so far.

    Attributes:
        folder: of the parts.
        planned_seconds: of audio that utterances go together by, the same when it is resumed.
        place: position of the vector of each utterance, NOT_THERE where there is none; int64.
        failures: position of an utterance -> reason, of this run alone: the next one tries them again.
        audio_seconds, wall_seconds: of all runs.
        batch_seconds: what fitted into the memory at once; None: nothing was recorded.
    """

    folder: Path
    planned_seconds: float
    place: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    failures: dict[int, str] = field(default_factory=dict)
    audio_seconds: float = 0.0
    wall_seconds: float = 0.0
    batch_seconds: float | None = None

    def __post_init__(self) -> None:
        self._written = 0
        self._dim = 0

    @property
    def rows(self) -> np.ndarray:
        """Positions of the utterances that are embedded, in order."""
        return np.flatnonzero(self.place != NOT_THERE)

    def extract(self, extractor: Extractor, utterances: Sequence[Utterance], progress: Callable[[int], object]) -> None:
        """Embed what is missing.

        Args:
            progress: called with the number of utterances finished since its last call, those of earlier runs first.

        Raises:
            UserError: the disk is full.
        """
        self._read(utterances, stored=extractor.stored)
        done = self.place != NOT_THERE
        if done.any():
            log.info("resuming: %d of %d utterances are embedded already", done.sum(), len(utterances))
            progress(int(done.sum()))
        extractor.batch_seconds = self.planned_seconds
        for seconds in (self.planned_seconds, self.batch_seconds):
            extractor.limit = min(extractor.limit, seconds or self.planned_seconds)
        pending: list[Embedded] = []
        begin = time.time()
        try:
            for batch in extractor.embed(utterances, is_done=done.item):
                pending.append(batch)
                self.failures |= batch.failures
                if time.time() - begin >= SECONDS:
                    begin = self._append(pending, begin, extractor.limit)
                if batch.finished:
                    progress(batch.finished)
        finally:
            self._append(pending, begin, extractor.limit)

    def vectors(self) -> Iterator[np.ndarray]:
        """The embeddings, float32, in the order of the utterances."""
        if not len(self.rows):
            return
        table = np.memmap(self.folder / VECTORS, dtype=np.float32, mode="r", shape=(self._written, self._dim))
        for position in self.place[self.rows]:
            yield np.array(table[position])

    def _append(self, pending: list[Embedded], begin: float, limit: float) -> float:
        """Record some batches and forget them; returns the time from which on the next ones count."""
        now = time.time()
        rows = [row for batch in pending for row in batch.rows]
        if rows:
            matrix = np.stack([vector for batch in pending for vector in batch.embeddings]).astype("<f4")
            facts = {
                "rows": rows,
                "dim": matrix.shape[1],
                "begin": begin,
                "audio_seconds": sum(batch.audio_seconds for batch in pending),
                "wall_seconds": now - begin,
                "batch_seconds": limit,
            }
            with explain_full_disk(self.folder):
                for name, content in ((VECTORS, matrix.tobytes()), (JOURNAL, f"{json.dumps(facts)}\n".encode())):
                    with (self.folder / name).open("ab") as stream:
                        stream.write(content)
                        stream.flush()
                        os.fsync(stream.fileno())
            self._count(facts)
        pending.clear()
        return now

    def _count(self, facts: Mapping[str, Any]) -> None:
        count = len(facts["rows"])
        self.place[facts["rows"]] = np.arange(self._written, self._written + count)
        self._written += count
        self._dim = facts["dim"]
        self.audio_seconds += facts["audio_seconds"]
        self.wall_seconds += facts["wall_seconds"]
        self.batch_seconds = facts["batch_seconds"]

    def _read(self, utterances: Sequence[Utterance], *, stored: bool) -> None:
        """Take up what is recorded, and cut off what is not; of a file changed since, all is embedded again."""
        self.place = np.full(len(utterances), NOT_THERE)
        journal, vectors = self.folder / JOURNAL, self.folder / VECTORS
        if not journal.is_file() or not vectors.is_file():
            _delete(journal, vectors)
            return
        content = journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        recorded = [json.loads(line) for line in whole.splitlines()]
        size = sum(4 * facts["dim"] * len(facts["rows"]) for facts in recorded)
        if vectors.stat().st_size < size:
            log.warning("%s: holds fewer vectors than %s lists; all are made again", vectors, journal)
            _delete(journal, vectors)
            return
        os.truncate(journal, len(whole))
        os.truncate(vectors, size)
        for facts in recorded:
            self._count(facts)
            for row in facts["rows"]:
                path = utterances[row].path
                if _changed_since((archive_of(path) or path) if stored else path, facts["begin"]):
                    self.place[row] = NOT_THERE


@contextmanager
def resumable_parts(folder: Path, made_of: Mapping[str, object], seconds: float) -> Iterator[EmbeddingParts]:
    """The embeddings of a folder of parts that are made of just this; the folder is deleted where the block succeeds.

    Args:
        folder: of the parts, beside the result.
        made_of: all that the embeddings depend on, as plain data.
        seconds: of audio in a batch, unless parts that are there say another number.

    Raises:
        UserError: another extraction writes there, or has left embeddings that are made of something else.
    """
    busy = f"{folder}: another extraction is writing there; wait for its end or choose another out"
    with explain_full_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold_alone(folder / LOCK, busy=busy):
            try:
                yield EmbeddingParts(folder, _claim(folder, made_of, seconds))
                _delete(*(folder / name for name in (JOURNAL, VECTORS, MADE_OF)))
            finally:
                if not (folder / JOURNAL).exists():
                    _delete(folder / MADE_OF)
                    delete_lock(folder / LOCK)
    finally:
        with suppress(OSError):  # it holds parts, or another extraction has begun there
            folder.rmdir()


def _claim(folder: Path, made_of: Mapping[str, object], seconds: float) -> float:
    """Note what the embeddings are made of, or refuse to mix them with others; returns the seconds noted."""
    claim, journal = folder / MADE_OF, folder / JOURNAL
    wanted = json.loads(json.dumps(made_of))
    if journal.is_file() and journal.stat().st_size:
        try:
            noted = json.loads(claim.read_text(encoding="utf-8"))
            found, planned = dict(noted["made_of"]), float(noted["batch_seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            found, planned = {}, seconds
        if found != wanted:
            raise UserError(
                f"{folder}: holds embeddings made with {_difference(found, wanted)}; repeat the command that made them "
                "to resume it, delete the folder to begin again, or choose another out"
            )
        return planned
    with explain_full_disk(folder), atomic_write(claim) as stream:
        json.dump({"made_of": wanted, "batch_seconds": seconds}, stream)
    return seconds


_WORDS = {"data": "other utterances", "stored": "another source", "weights": "another model", "model": "another model",
          "features": "other features"}  # fmt: skip


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What parts were made with that is not what is asked for: the first thing that tells them apart."""
    keys = [key for key in wanted if found.get(key) != wanted[key]]
    if not found:
        return "something unknown (their made_of.json is missing or damaged)"
    for key in keys:
        if key == "settings":
            settings = found.get(key) or {}
            name = next(name for name in settings | wanted[key] if settings.get(name) != wanted[key].get(name))
            return f"{name}={_shown(settings.get(name))}, not {_shown(wanted[key].get(name))}"
        if key in _WORDS:
            return _WORDS[key]
    return f"{keys[0]} {found.get(keys[0])}, not {wanted[keys[0]]}" if keys else "further settings"


def _shown(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"


def _delete(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def digest_of(utterances: Sequence[Utterance]) -> str:
    """Changes with the ids, files and stretches of utterances."""
    digest = hashlib.sha256()
    for item in utterances:
        end = None if item.whole_file else item.duration
        digest.update(f"{item.utterance_id}\t{item.path}\t{item.offset!r}\t{end!r}\n".encode())
    return digest.hexdigest()


def _changed_since(path: Path, moment: float) -> bool:
    """Whether a file was written after a time; one that cannot be asked, as in a shard, was not."""
    try:
        return os.stat(path).st_mtime > moment
    except OSError:
        return False
