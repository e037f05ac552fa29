"""The SQLite file of a store: its tables, how it is opened, and which other files are refused.

Every change is one transaction that begins by taking the lock of writers, so that several processes may write. The
journal is SQLite's oldest, a file beside the store while a change is under way: a process that is killed leaves it, and
whoever opens the store next undoes the change. Unlike a write-ahead log, it keeps no page once the change is done.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

APPLICATION_ID = 0x53565453
"""SVTS, in the header of the file: what tells a store from other databases of SQLite."""

VERSION = 1
"""Of the tables; a store of a later one is refused."""

BUSY_SECONDS = 30.0
"""How long a writer waits for others."""

TABLES = """
CREATE TABLE model (
    digest TEXT NOT NULL, name TEXT NOT NULL, dimension INTEGER NOT NULL, threshold REAL, operating_point TEXT,
    created TEXT NOT NULL
);
CREATE TABLE speakers (name TEXT PRIMARY KEY, created TEXT NOT NULL);
CREATE TABLE recordings (
    speaker TEXT NOT NULL REFERENCES speakers (name) ON DELETE CASCADE, embedding BLOB NOT NULL, created TEXT NOT NULL,
    UNIQUE (speaker, embedding)
);
"""


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a store; one that is made is whole or not there, whoever else makes it at the same time.

    Raises:
        UserError: there is none and ``create`` is False; the file is something else, damaged, or of a later version.
    """
    there = is_regular(path)
    if not there and path.is_dir():
        raise UserError(f"{path}: is a folder, expected a store of speakers; give a file in it, as {path}/speakers.db")
    if not there and not create:
        raise UserError(f"{path}: there is no such store; correct the path, or make one with `svt enrol`")
    if not there and not path.absolute().parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.absolute().parent}; make it first")
    # Autocommit: where a transaction begins and ends is said here, not by the module.
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        _prepare(path, connection, create)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(path: Path, connection: sqlite3.Connection, create: bool) -> None:
    try:
        for pragma in ("journal_mode = DELETE", "secure_delete = ON", "foreign_keys = ON", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        if _header(connection) == (0, 0) and _is_empty(connection):
            if not create:
                raise UserError(f"{path}: is empty, expected a store of speakers; make one with `svt enrol`")
            connection.execute("BEGIN IMMEDIATE")
            if _is_empty(connection):
                for statement in TABLES.strip().split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        application, version = _header(connection)
    except sqlite3.DatabaseError as error:
        raise explain(path, error) from error
    if application != APPLICATION_ID:
        raise UserError(
            f"{path}: is a database of another program, expected a store of speakers; give a file of its own"
        )
    if version != VERSION:
        raise UserError(
            f"{path}: is a store of version {version}, this svtoolkit reads version {VERSION}; use a newer svtoolkit"
        )


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    return application, version


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def explain(path: Path, error: sqlite3.DatabaseError) -> UserError:
    """The sentence of what SQLite refuses."""
    reason = str(error)
    if "not a database" in reason or "malformed" in reason:
        return UserError(
            f"{path}: is no store of speakers, or a damaged one ({reason}); give another file, or a copy of it"
        )
    if "locked" in reason:
        return UserError(
            f"{path}: other programs have been writing to it for {BUSY_SECONDS:g} s ({reason}); end them, or try again"
        )
    remedy = "check the file, its folder, their permissions and the free disk"
    return UserError(f"{path}: the store cannot be used ({reason}); {remedy}")
