"""A folder that a long command fills: one run at a time, one kind of content, resumed after any stop."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.file_lock import NoLocksError, hold_lock
from svtoolkit.system.temporary_names import is_being_written, is_temporary, remove

log = logging.getLogger(__name__)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system answers where nothing more can be written: disk, quota or limit of a file's size."""

RESUME = (
    "what is finished is kept: free some disk, or see what limits the size of files, and run the same command again"
)


@contextmanager
def explain_full_disk(folder: Path, remedy: str = RESUME) -> Iterator[None]:
    """A full disk as a sentence with the file, or the folder where the system names none.

    Raises:
        UserError: that sentence.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise UserError(f"{error.filename or folder}: {error.strerror}; {remedy}") from error


@contextmanager
def hold_alone(lock: Path, *, busy: str | None) -> Iterator[bool]:
    """Keep other runs out of a folder; yields whether there certainly is none.

    Args:
        lock: a file for ``hold_lock``; where there are no locks, a warning names it.
        busy: the sentence for the user where another run holds it; None: it is waited for.

    Raises:
        UserError: that sentence.
    """
    alone = True
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(lock, wait=busy is None))
        except BlockingIOError as error:
            raise UserError(busy) from error
        except NoLocksError as error:
            alone = False
            log.warning(
                "%s: the file system has no locks; see to it that no other process writes there", error.filename
            )
        yield alone


def claim_folder(claim: Path, made_of: Mapping[str, object], *, content: str, is_empty: bool = False) -> None:
    """Note what a folder's content is made of, or refuse to mix it with what is made of something else.

    Args:
        claim: the note, in JSON; written where it is missing.
        made_of: all options that the content depends on.
        content: how a message names it, to be followed by such options: ``shards made of``.
        is_empty: there is no content yet, whatever the note says: it is replaced.

    Raises:
        UserError: the note says something else.
    """
    wanted = json.dumps(made_of)
    if is_empty or not claim.is_file():
        with atomic_write(claim) as stream:
            stream.write(f"{wanted}\n")
    found = claim.read_text(encoding="utf-8", errors="replace").strip()
    if found != wanted:
        raise UserError(
            f"{claim}: the folder holds {content} {found}, now asked for {wanted}; choose another folder or delete "
            "this one"
        )


def remove_leftovers(folders: Iterable[str | Path]) -> None:
    """Delete what ``atomic_write`` left in folders, some of which may be missing, when its process was killed.

    For who holds the folders alone: what another machine left is deleted, too, however new it is.
    """
    for folder in folders:
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                if is_temporary(name) and not is_being_written(name):
                    remove(Path(folder, name))
