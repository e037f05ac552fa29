"""Embeddings as they are made: appended to a journal beside the result, so that a stopped extraction is resumed.

Layout: `<out>.parts/<digest of what they are made of>/`, with the vectors one after the other in `vectors.f32` and a
line of `journal.jsonl` for every few of them. A line is written when its vectors are on the disk; what a kill leaves
after the last whole line is cut off. Embeddings of another model, other data or other settings have another folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.data.feature_archive import archive_of
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.scoring.extraction import Embedded, EmbeddingExtractor
from svtoolkit.system.file_lock import delete_lock
from svtoolkit.system.output_folder import explain_full_disk, hold_alone

log = logging.getLogger(__name__)

SECONDS = 30.0
"""Of work that a kill may cost."""
VECTORS, JOURNAL, LOCK = "vectors.f32", "journal.jsonl", "lock"


@dataclass
class EmbeddingParts:
    """What is embedded so far.

    Attributes:
        folder: of these embeddings; made with the first of them.
        place: position of an utterance -> of its vector.
        failures: position of an utterance -> reason, of this run alone: the next one tries them again.
        audio_seconds, wall_seconds: of all runs.
        batch_seconds: what fitted into the memory at once; None: nothing was recorded.
    """

    folder: Path
    place: dict[int, int] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    audio_seconds: float = 0.0
    wall_seconds: float = 0.0
    batch_seconds: float | None = None

    def __post_init__(self) -> None:
        self._written = 0
        self._dim = 0

    def extract(
        self, extractor: EmbeddingExtractor, utterances: Sequence[Utterance], progress: Callable[[int], object]
    ) -> None:
        """Embed what is missing.

        Args:
            progress: called with the number of utterances finished since its last call, those of earlier runs first.

        Raises:
            UserError: the disk is full.
        """
        self._read(utterances, stored=extractor.stored)
        if self.place:
            log.info("resuming: %d of %d utterances are embedded already", len(self.place), len(utterances))
            progress(len(self.place))
        if self.batch_seconds is not None:
            extractor.forward.seconds = min(extractor.forward.seconds, self.batch_seconds)
        pending: list[Embedded] = []
        begin = time.time()
        try:
            for batch in extractor.embed(utterances, is_done=set(self.place).__contains__):
                pending.append(batch)
                self.failures |= batch.failures
                if time.time() - begin >= SECONDS:
                    begin = self._append(pending, begin, extractor.forward.seconds)
                if batch.finished:
                    progress(batch.finished)
        finally:
            self._append(pending, begin, extractor.forward.seconds)

    def vectors(self) -> Iterator[np.ndarray]:
        """The embeddings, float32, in the order of the utterances."""
        if not self.place:
            return
        table = np.memmap(self.folder / VECTORS, dtype=np.float32, mode="r", shape=(self._written, self._dim))
        for row in sorted(self.place):
            yield np.array(table[self.place[row]])

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
                self.folder.mkdir(parents=True, exist_ok=True)
                for name, content in ((VECTORS, matrix.tobytes()), (JOURNAL, f"{json.dumps(facts)}\n".encode())):
                    with (self.folder / name).open("ab") as stream:
                        stream.write(content)
                        stream.flush()
                        os.fsync(stream.fileno())
            self._count(facts)
        pending.clear()
        return now

    def _count(self, facts: Mapping[str, Any]) -> None:
        for row in facts["rows"]:
            self.place[row] = self._written
            self._written += 1
        self._dim = facts["dim"]
        self.audio_seconds += facts["audio_seconds"]
        self.wall_seconds += facts["wall_seconds"]
        self.batch_seconds = facts["batch_seconds"]

    def _read(self, utterances: Sequence[Utterance], *, stored: bool) -> None:
        """Take up what is recorded, and cut off what is not; of a file changed since, all is embedded again."""
        journal, vectors = self.folder / JOURNAL, self.folder / VECTORS
        if not journal.is_file() or not vectors.is_file():
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        content = journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        recorded = [json.loads(line) for line in whole.splitlines()]
        size = sum(4 * facts["dim"] * len(facts["rows"]) for facts in recorded)
        if vectors.stat().st_size < size:
            log.warning("%s: holds fewer vectors than %s lists; all are made again", vectors, journal)
            shutil.rmtree(self.folder)
            return
        os.truncate(journal, len(whole))
        os.truncate(vectors, size)
        for facts in recorded:
            self._count(facts)
            for row in facts["rows"]:
                path = utterances[row].path
                if _changed_since((archive_of(path) or path) if stored else path, facts["begin"]):
                    del self.place[row]


@contextmanager
def resumable_parts(folder: Path, made_of: Mapping[str, object]) -> Iterator[EmbeddingParts]:
    """The embeddings of a folder of parts that are made of just this; the folder is deleted where the block succeeds.

    Args:
        folder: of the parts, beside the result.
        made_of: all that the embeddings depend on, as plain data.

    Raises:
        UserError: another extraction writes there.
    """
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    busy = f"{folder}: another extraction is writing there; wait for its end or choose another out"
    with explain_full_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold_alone(folder / LOCK, busy=busy):
            others = [path.name for path in _parts_in(folder) if path.name != digest]
            if others:
                log.warning(
                    "%s: holds embeddings of another model, other data or other settings (%s), which are not used",
                    folder, ", ".join(sorted(others)),
                )  # fmt: skip
            try:
                yield EmbeddingParts(folder / digest)
                for path in _parts_in(folder):
                    shutil.rmtree(path)
            finally:
                if not _parts_in(folder):
                    delete_lock(folder / LOCK)
    finally:
        with suppress(OSError):  # it holds parts, or another extraction has begun there
            folder.rmdir()


def _parts_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


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
