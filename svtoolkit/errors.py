"""The one exception that a user is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right: bad input, an impossible combination of options, a full disk.

    The message is a sentence that names the file and line where there is one, what was found, what was
    expected and what to do. The command line prints it without a traceback and exits with 1.
    """
