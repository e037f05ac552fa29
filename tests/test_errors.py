"""What a message never shows."""

from __future__ import annotations

import logging
import pickle

import pytest

from svtoolkit.cli import main
from svtoolkit.data.bad_files import BadFile, write_bad_files
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.runs.provenance import append_command, read_record, write_record
from svtoolkit.system.output import log_to_stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:secret@host/a.tar: is gone", "https://***@host/a.tar: is gone"),
        ("https:/me:secret@host/a.tar:0:5", "https:/***@host/a.tar:0:5"),
        (r"https\://me\:secret@host/a", r"https\://***@host/a"),
        ("https://me:se@cret@host:80/a", "https://***@host:80/a"),
        ("s3://key@bucket and ftp://me:secret@host", "s3://***@bucket and ftp://***@host"),
        ("https://host/me@home", "https://host/me@home"),
        ("file:///home/me@host/a", "file:///home/me@host/a"),
        ("https://host/a.tar?sig=aB%2F&part=3", "https://host/a.tar?sig=***&part=3"),
        ("s3: https://h/a?X-Amz-Signature=12ab&X-Amz-Date=5", "s3: https://h/a?X-Amz-Signature=***&X-Amz-Date=5"),
        ("https://h/a?access_token=12:0:5 in trainer.key=3", "https://h/a?access_token=*** in trainer.key=3"),
        ("a@b, c:d@e, /x:/y", "a@b, c:d@e, /x:/y"),
    ],
)
def test_credentials(text, shown):
    assert hide_credentials(text) == shown
    assert str(UserError(text)) == shown
    assert str(pickle.loads(pickle.dumps(UserError(text)))) == shown


def test_the_log(capsys):
    with log_to_stdout():
        logging.getLogger("svtoolkit.test").info("%s: fetched", "https://me:secret@host/a.tar")
    assert capsys.readouterr().out == "https://***@host/a.tar: fetched\n"


def test_records_of_commands(tmp_path):
    write_record(tmp_path / "r.yaml", "svt x root=https://me:secret@host/", {"root": "https://me:secret@host/"})
    assert "secret" not in (tmp_path / "r.yaml").read_text()
    assert read_record(tmp_path / "r.yaml") == {"command": "svt x root=https://***@host/", "root": "https://***@host/"}


def test_commands_of_a_run_whoever_gives_them(tmp_path):
    append_command(tmp_path / "commands.txt", "svt train data.root=https://me:secret@host/")
    append_command(tmp_path / "commands.txt", "svt train data.root=https://me:secret@host/")
    assert (tmp_path / "commands.txt").read_text() == "svt train data.root=https://***@host/\n"


def test_bad_files_of_shards_at_a_url(tmp_path):
    write_bad_files(tmp_path, [BadFile("a", "https:/me:secret@host/s.tar:0:9", "https://me:secret@host/s.tar: is cut")])
    assert "secret" not in (tmp_path / "bad_files.tsv").read_text()


def test_the_configuration_that_is_shown(capsys):
    words = ["data.train=https://me:secret@host/a", "--data.root", "s3://key:secret@b/"]
    assert main(["train", *words, "--cfg", "job"]) == 0
    shown = capsys.readouterr().out
    assert "train: https://***@host/a\n" in shown
    assert "root: s3://***@b/\n" in shown
    assert "secret" not in shown


def test_errors_of_usage(capsys):
    assert main(["train", "data.rot=https://me:secret@host/"]) == 1
    assert main(["train", "data.channel=https://me:secret@host/"]) == 1
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\x00b", r"a\x00b"),
        ("a\u202eb", r"a\u202eb"),
        ("a\udcffb", r"a\udcffb"),
        ("Zoë, 說話人\nsecond line", "Zoë, 說話人\nsecond line"),
    ],
)
def test_what_a_terminal_would_obey_is_an_escape(said, shown):
    assert str(UserError(said)) == shown
