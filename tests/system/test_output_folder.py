from __future__ import annotations

import errno
import json
import os

import pytest

from svtoolkit.errors import UserError
from svtoolkit.system import file_lock
from svtoolkit.system.file_lock import hold_lock
from svtoolkit.system.output_folder import DISK_FULL, claim_folder, explain_full_disk, hold_alone, remove_leftovers

MADE_OF = {"format": "flac", "channel": None}


@pytest.mark.skipif(os.name != "posix", reason="locks of Unix")
def test_one_run_at_a_time(tmp_path):
    lock = tmp_path / "lock"
    with hold_alone(lock, busy="there is another one") as alone:
        assert alone
        with pytest.raises(UserError, match=r"^there is another one$"), hold_alone(lock, busy="there is another one"):
            pytest.fail("two at a time")
    with hold_lock(lock, wait=False):
        assert lock.exists()


def test_without_locks_a_warning_is_all(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(file_lock, "fcntl", None)
    lock = tmp_path / "lock"
    with hold_alone(lock, busy="") as alone, hold_alone(lock, busy="") as other:
        assert not alone
        assert not other
    assert caplog.messages == 2 * [
        f"{lock}: the file system has no locks; see to it that no other process writes there"
    ]


def test_what_goes_wrong_in_the_block_stays_what_it_is(tmp_path):
    with pytest.raises(BlockingIOError, match="of the work"), hold_alone(tmp_path / "lock", busy="there is another"):
        raise BlockingIOError("of the work")


def test_a_claim_is_made_once_and_others_are_refused(tmp_path):
    claim = tmp_path / "new" / "made_of.json"
    claim_folder(claim, MADE_OF, content="things made of")
    assert claim.read_bytes() == b'{"format": "flac", "channel": null}\n'
    before = claim.stat().st_mtime_ns
    claim_folder(claim, MADE_OF, content="things made of")
    assert claim.stat().st_mtime_ns == before
    with pytest.raises(UserError) as error:
        claim_folder(claim, MADE_OF | {"channel": 1}, content="things made of")
    assert str(error.value) == (
        f'{claim}: the folder holds things made of {json.dumps(MADE_OF)}, now asked for {{"format": "flac", '
        '"channel": 1}; choose another folder or delete this one'
    )


def test_a_claim_that_is_damaged_is_another_one(tmp_path):
    claim = tmp_path / "made_of.json"
    claim.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match="the folder holds things made of \ufffd, now asked for"):
        claim_folder(claim, MADE_OF, content="things made of")
    assert claim.read_bytes() == b"\xff\n"


def test_leftovers_are_temporary_files_alone(tmp_path):
    for name in (".a.flac.0123456789abcdef.tmp", "a.tmp", ".hidden", "a.flac", ".notes.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / ".b.0123456789abcdef.tmp").touch()
    remove_leftovers([tmp_path, tmp_path / "missing"])
    assert {path.name for path in tmp_path.rglob("*")} == {
        "a.tmp", ".hidden", "a.flac", ".notes.tmp", "below", ".b.0123456789abcdef.tmp",
    }  # fmt: skip


@pytest.mark.parametrize("number", DISK_FULL)
@pytest.mark.parametrize("file", ["a.flac", None])
def test_a_full_disk_names_the_file_or_the_folder(tmp_path, number, file):
    with (
        pytest.raises(UserError, match=rf"^{file or tmp_path}: .*; what is finished is kept: free some disk"),
        explain_full_disk(tmp_path),
    ):
        raise OSError(number, os.strerror(number), file)


def test_other_errors_of_the_system_stay_what_they_are(tmp_path):
    with pytest.raises(PermissionError, match=r"a\.flac"), explain_full_disk(tmp_path, "no remedy"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), "a.flac")
