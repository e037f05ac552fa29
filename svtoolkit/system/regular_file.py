"""What is read is a regular file: a pipe would be waited for, and a device such as /dev/zero never ends.

The kind is asked for before the file is opened: opening a pipe waits for its writer, and opening a device may act.
"""

from __future__ import annotations

import errno
import os
import stat

from svtoolkit.errors import UserError

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.EINVAL, errno.ENAMETOOLONG)


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is there, or a link to one; False where nothing or a folder is.

    Raises:
        UserError: a pipe, a device or a socket is there, or a link to one.
        OSError: the folder may not be looked into.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False
    except ValueError:  # a null character
        return False
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise UserError(f"{os.fspath(path)}: is {name}, expected a regular file; write its content to one first")
    return stat.S_ISREG(mode)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe, a device or a socket; what else there is, or is not, opening it will tell.

    Raises:
        UserError: such a thing is there, or a link to one.
    """
    try:
        is_regular(path)
    except OSError:
        return
