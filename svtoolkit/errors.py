"""The one exception that a user is meant to read, and what no message may show."""

from __future__ import annotations

import re
from typing import Any

_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*\\?:/{1,2})[^/\s]+@")
"""Hydra escapes colons."""

_SIGNED = re.compile(r"(?i)([?&](?:[\w-]*(?:token|signature|credential|secret|password|key|keyid)|sig)=)[^&\s'\"]+")
"""In the query of a URL: those of S3, GCS and Azure, and what services call theirs."""

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys or cannot show, where a file's own words are part of a message."""


def hide_credentials(text: str) -> str:
    """``text`` with ``***`` for the user and password of URLs, also of those that have lost a slash in a path, and for
    the keys and signatures of their queries."""
    text = _CREDENTIALS.sub(r"\1***@", text) if "@" in text else text
    return _SIGNED.sub(r"\1***", text) if "=" in text else text


def without_credentials(content: Any) -> Any:
    """Nested plain data with the same done to all texts in it."""
    if isinstance(content, dict):
        return {key: without_credentials(value) for key, value in content.items()}
    if isinstance(content, list):
        return [without_credentials(value) for value in content]
    return hide_credentials(content) if isinstance(content, str) else content


class UserError(Exception):
    """Something the user can put right: bad input, an impossible combination of options, a full disk.

    The message is a sentence that names the file and line where there is one, what was found, what was
    expected and what to do. The command line prints it without a traceback and exits with 1. Credentials of a URL are
    not part of it, and characters that a terminal would obey are written as escapes.
    """

    def __str__(self) -> str:
        text = hide_credentials(super().__str__())
        return text if text.isprintable() else _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)
