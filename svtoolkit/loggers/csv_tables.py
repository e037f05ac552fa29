"""Tables for a spreadsheet: a row a step, a row an epoch, and the configuration."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from svtoolkit.loggers.run_logger import LoggedRun, RunLogger
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.plain_data import flatten

TABLES = {"step": "steps.csv", "epoch": "epochs.csv"}
"""Kind of a record -> its file."""

CONFIG = "config.csv"


class CSVLogger(RunLogger):
    """logs/steps.csv, logs/epochs.csv and logs/config.csv.

    When a run is resumed the tables are those of its history up to that step: no row is there twice, and none is
    missing where an earlier process could not write it.
    """

    def __init__(self, run: LoggedRun) -> None:
        with atomic_write(run.folder / CONFIG) as stream:
            _writer(stream).writerows([("key", "value"), *flatten(run.config).items()])
        self._tables = {
            kind: _Table(run.folder / name, [record for record in run.records if record["kind"] == kind])
            for kind, name in TABLES.items()
        }

    def log(self, record: Mapping[str, Any]) -> None:
        if record["kind"] in self._tables:
            self._tables[record["kind"]].add(record)

    def close(self, outcome: str) -> None:
        for table in self._tables.values():
            table.close()


class _Table:
    """One file: written anew when it is opened and when a figure comes that has no column yet, else appended to."""

    def __init__(self, path: Path, records: Sequence[Mapping[str, Any]]) -> None:
        self.path = path
        self.records = list(records)
        self.columns: list[str] = []
        self._stream: IO[str] | None = None
        self._write_anew()

    def add(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)
        if self._stream is None or not record.keys() <= {"kind", *self.columns}:
            self._write_anew()
            return
        _writer(self._stream).writerow(self._row(record))
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _write_anew(self) -> None:
        self.close()
        names = dict.fromkeys(name for record in self.records for name in record)
        self.columns = [name for name in names if name != "kind"]
        with atomic_write(self.path) as stream:
            _writer(stream).writerows([self.columns, *map(self._row, self.records)] if self.records else [])
        self._stream = self.path.open("a", encoding="utf-8", newline="")

    def _row(self, record: Mapping[str, Any]) -> list[Any]:
        return [record.get(name) for name in self.columns]


def _writer(stream: IO[str]) -> Any:
    return csv.writer(stream, lineterminator="\n")
