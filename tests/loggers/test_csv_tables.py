"""Tables that a spreadsheet opens: whole after every record, and after a run was resumed."""

from __future__ import annotations

import csv

from logger_material import epoch_record, logged_run, step_record

from svtoolkit.loggers.csv_tables import CSVLogger
from svtoolkit.loggers.run_logger import FINISHED


def rows(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def test_a_row_a_record(tmp_path):
    logger = CSVLogger(logged_run(tmp_path))
    assert rows(tmp_path / "steps.csv") == []
    logger.log(step_record(10))
    assert rows(tmp_path / "steps.csv") == [["step", "epoch", "loss", "lr"], ["10", "1", "1.0", "0.1"]]
    logger.log(step_record(20))
    logger.log({"kind": "note", "text": "by hand"})
    logger.close(FINISHED)
    assert rows(tmp_path / "steps.csv")[2:] == [["20", "1", "1.0", "0.1"]]
    assert rows(tmp_path / "epochs.csv") == []
    assert (tmp_path / "steps.csv").read_bytes().count(b"\n") == 3


def test_a_figure_that_comes_later_gets_a_column(tmp_path):
    logger = CSVLogger(logged_run(tmp_path))
    for record in (epoch_record(5), epoch_record(10, validation_eer=0.25), epoch_record(15)):
        logger.log(record)
    logger.close(FINISHED)
    assert rows(tmp_path / "epochs.csv") == [
        ["step", "epoch", "loss", "validation_eer"], ["5", "1", "0.5", ""], ["10", "1", "0.5", "0.25"],
        ["15", "1", "0.5", ""],
    ]  # fmt: skip


def test_a_resumed_run_replaces_what_it_makes_again(tmp_path):
    first = CSVLogger(logged_run(tmp_path))
    for step in range(1, 8):
        first.log(step_record(step))
    with (tmp_path / "steps.csv").open("a") as stream:
        stream.write("8,1,")  # where a kill came
    second = CSVLogger(logged_run(tmp_path, [step_record(step) for step in range(1, 5)]))
    second.log(step_record(5, 2.0))
    second.close(FINISHED)
    assert [row[0] for row in rows(tmp_path / "steps.csv")] == ["step", "1", "2", "3", "4", "5"]
    assert rows(tmp_path / "steps.csv")[-1][2] == "2.0"


def test_the_configuration_is_a_table(tmp_path):
    CSVLogger(logged_run(tmp_path)).close(FINISHED)
    assert rows(tmp_path / "config.csv") == [
        ["key", "value"], ["seed", "7"], ["optim.name", "sgd"], ["optim.lr", "0.1"], ["data.root", "https://***@host/"],
        ["data.speeds", "[1.0, 0.9]"],
    ]  # fmt: skip
