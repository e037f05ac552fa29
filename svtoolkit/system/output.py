"""What a command prints while it works: the log of svtoolkit, and warnings of other libraries."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from svtoolkit.errors import hide_credentials
from svtoolkit.system.shell_words import join_words

log = logging.getLogger(__name__)

IN_RECIPE = "SVT_RECIPE"
"""Variable of the environment that scripts/stages.sh sets."""


@contextmanager
def log_to_stdout(form: str = "%(message)s") -> Iterator[None]:
    """What svtoolkit logs is the output of a command; of other libraries, warnings are."""
    handler = StdoutHandler(sys.stdout)
    handler.setFormatter(DiscreetFormatter(form))
    root, ours = logging.getLogger(), logging.getLogger("svtoolkit")
    before = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)


def say_next(*words: str) -> None:
    """Log the command that usually follows, as a shell takes it; not in a recipe, which runs it by itself."""
    if not os.environ.get(IN_RECIPE):
        log.info("next: %s", join_words(words))


@contextmanager
def inside_recipe() -> Iterator[None]:
    """What follows is known: no command inside the block says which usually does."""
    before = os.environ.get(IN_RECIPE)
    os.environ[IN_RECIPE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[IN_RECIPE]
        else:
            os.environ[IN_RECIPE] = before


class DiscreetFormatter(logging.Formatter):
    """Keeps the credentials of URLs out of a log."""

    def format(self, record: logging.LogRecord) -> str:
        return hide_credentials(super().format(record))


class StdoutHandler(logging.StreamHandler):
    """Ends the command when its output is no longer read (a closed pipe), without a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's own name
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            raise
        super().handleError(record)
