"""Embeddings of known speakers, of one model: added, deleted, listed and compared with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from svtoolkit.enrolment.schema import connect, explain
from svtoolkit.errors import UserError
from svtoolkit.scoring.pair import cosine, enrolment_vector

LONGEST_NAME = 200


@dataclass(frozen=True)
class StoreModel:
    """The model whose embeddings a store holds.

    Attributes:
        digest: SHA-256 of what its embeddings depend on, as the model says it.
        name: what people call it, for messages.
        dimension: of its embeddings.
        threshold: cosine at and above which a speaker is recognised; None: unknown.
        operating_point: what the threshold was chosen by; None: it was given, or there is none.
    """

    digest: str
    name: str
    dimension: int
    threshold: float | None = None
    operating_point: str | None = None


@dataclass(frozen=True)
class Enrolled:
    """A speaker of the store.

    Attributes:
        recordings: how many embeddings.
        created: when the first of them was added, in UTC (ISO 8601).
    """

    name: str
    recordings: int
    created: str


class UnknownSpeakerError(UserError):
    """A store has nobody of that name."""


class SpeakerStore:
    """A store on disk; each call opens the file anew, so that an object may be shared by threads.

    Args:
        path: the file; ``add`` makes it where it is missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def add(self, model: StoreModel, speaker: str, embeddings: np.ndarray, *, replace: bool = False) -> int:
        """Add recordings of a speaker, all of them or none; an embedding that is there already is not added again.

        Args:
            model: whose embeddings they are. Its threshold becomes that of the store where the store has none, or
                where the threshold was given by hand (it has no operating point).
            speaker: name; known or new.
            embeddings: (recordings, dimension).
            replace: former recordings of the speaker are deleted.

        Returns:
            how many recordings the speaker has now.

        Raises:
            UserError: the store is of another model, or no store; a name that is empty or too long.
        """
        check_name(speaker)
        rows = np.asarray(embeddings, dtype="<f4")
        if rows.ndim != 2 or rows.shape[1] != model.dimension or not len(rows):
            raise ValueError(f"embeddings are {rows.shape}, expected (recordings, {model.dimension})")
        if not np.isfinite(rows).all():
            raise UserError("an embedding is not finite; record the speaker again")
        now = _now()
        with self._changing(create=True) as connection:
            self._enter(connection, model, now)
            if replace:
                connection.execute("DELETE FROM speakers WHERE name = ?", (speaker,))
            connection.execute("INSERT OR IGNORE INTO speakers VALUES (?, ?)", (speaker, now))
            connection.executemany(
                "INSERT OR IGNORE INTO recordings VALUES (?, ?, ?)", [(speaker, row.tobytes(), now) for row in rows]
            )
            count = connection.execute("SELECT count(*) FROM recordings WHERE speaker = ?", (speaker,)).fetchone()[0]
        if replace:
            self._compact()
        return int(count)

    def prepare(self, model: StoreModel) -> None:
        """Make the store for a model where it is missing.

        Raises:
            UserError: it is of another model, or no store.
        """
        with self._changing(create=True) as connection:
            self._enter(connection, model, _now())

    def delete(self, speaker: str) -> None:
        """Delete a speaker: no byte of the name and of the embeddings stays in the file.

        Raises:
            UserError: there is no such speaker, or no such store.
        """
        with self._changing() as connection:
            if not connection.execute("DELETE FROM speakers WHERE name = ?", (speaker,)).rowcount:
                raise UnknownSpeakerError(
                    f"{self.path}: knows nobody called {speaker!r}; `svt enrolled` lists the speakers"
                )
        self._compact()

    def speakers(self) -> list[Enrolled]:
        """All speakers, by name."""
        query = (
            "SELECT s.name, count(r.embedding), s.created FROM speakers s LEFT JOIN recordings r ON r.speaker = s.name "
            "GROUP BY s.name ORDER BY s.name"
        )
        with self._reading() as connection:
            return [Enrolled(*row) for row in connection.execute(query)]

    def model(self) -> StoreModel:
        """The model of the store.

        Raises:
            UserError: no store, or one without a model.
        """
        with self._reading() as connection:
            found = _model_of(connection)
        if found is None:
            raise UserError(f"{self.path}: holds nobody yet; `svt enrol` adds a speaker")
        return found

    def check_model(self, model: StoreModel) -> StoreModel:
        """The model of the store, which has to be this one.

        Raises:
            UserError: it is another; names both.
        """
        known = self.model()
        self._refuse_other(known, model)
        return known

    def embeddings(self, speaker: str) -> np.ndarray:
        """Those of a speaker, (recordings, dimension) float32.

        Raises:
            UserError: there is no such speaker.
        """
        with self._reading() as connection:
            query = "SELECT embedding FROM recordings WHERE speaker = ? ORDER BY rowid"
            rows = [np.frombuffer(row[0], dtype="<f4") for row in connection.execute(query, (speaker,))]
        if not rows:
            raise UnknownSpeakerError(
                f"{self.path}: knows nobody called {speaker!r}; `svt enrolled` lists the speakers"
            )
        return np.stack(rows)

    def nearest(self, embedding: np.ndarray, count: int) -> list[tuple[str, float]]:
        """The speakers whose recordings are closest, the closest first, with their cosines.

        Args:
            embedding: (dimension,).
            count: how many at most.
        """
        groups: dict[str, list[np.ndarray]] = {}
        with self._reading() as connection:
            for name, blob in connection.execute("SELECT speaker, embedding FROM recordings ORDER BY rowid"):
                groups.setdefault(name, []).append(np.frombuffer(blob, dtype="<f4"))
        scores = {name: cosine(enrolment_vector(np.stack(rows)), embedding) for name, rows in groups.items()}
        return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]

    def _enter(self, connection: sqlite3.Connection, model: StoreModel, now: str) -> None:
        known = _model_of(connection)
        if known is not None and not connection.execute("SELECT count(*) FROM speakers").fetchone()[0]:
            connection.execute("DELETE FROM model")  # of whom nothing is left: any model may begin anew
            known = None
        if known is None:
            values = (model.digest, model.name, model.dimension, model.threshold, model.operating_point, now)
            connection.execute("INSERT INTO model VALUES (?, ?, ?, ?, ?, ?)", values)
            return
        self._refuse_other(known, model)
        given = model.threshold is not None and model.operating_point is None
        if model.threshold is not None and (given or known.threshold is None):
            point = (model.threshold, model.operating_point)
            connection.execute("UPDATE model SET threshold = ?, operating_point = ?", point)

    def _refuse_other(self, known: StoreModel, model: StoreModel) -> None:
        if known.digest != model.digest:
            raise UserError(
                f"{self.path}: holds embeddings of {known.name} ({known.digest[:12]}), found the model {model.name} "
                f"({model.digest[:12]}), whose embeddings cannot be compared with them; give that model, or another "
                "store and enrol again"
            )

    def _unknown(self, speaker: str) -> UnknownSpeakerError:
        return UnknownSpeakerError(f"{self.path}: knows nobody called {speaker!r}; `svt enrolled` lists the speakers")

    def _compact(self) -> None:
        """Rewrite the file, since deleted bytes may be left where rows were moved within a page."""
        with self._open(create=False) as connection:
            connection.execute("VACUUM")

    @contextmanager
    def _changing(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction, which is undone where the block raises."""
        with self._open(create=create) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._open(create=False) as connection:
            yield connection

    @contextmanager
    def _open(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        with closing(connect(self.path, create=create)) as connection:
            try:
                yield connection
            except sqlite3.DatabaseError as error:
                raise explain(self.path, error) from error


def check_name(speaker: str) -> None:
    """Refuse what no list could show.

    Raises:
        UserError: empty, longer than 200 characters, blanks at an end, or characters that are not printed.
    """
    if not speaker or len(speaker) > LONGEST_NAME or not speaker.isprintable() or speaker != speaker.strip():
        raise UserError(
            f"name is {speaker!r:.80}, expected 1 to {LONGEST_NAME} printable characters without blanks at the ends"
        )


def recognised(nearest: Sequence[tuple[str, float]], threshold: float | None) -> str | None:
    """The closest speaker where the score reaches the threshold; None: nobody does, or there is no threshold."""
    if threshold is None or not nearest or nearest[0][1] < threshold:
        return None
    return nearest[0][0]


def _model_of(connection: sqlite3.Connection) -> StoreModel | None:
    row = connection.execute("SELECT digest, name, dimension, threshold, operating_point FROM model").fetchone()
    return None if row is None else StoreModel(*row)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
