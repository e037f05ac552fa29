"""Utterances that a run leaves out because their audio cannot be used: listed in exp_dir, up to ``data.max_bad``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from svtoolkit.crops.manifest import Manifest
from svtoolkit.data.bad_files import BAD_FILES, BadFile, BadFiles, read_bad_files, write_bad_files

log = logging.getLogger(__name__)


class BadUtterances:
    """What was found so far, by this run and, where it is resumed, before.

    Args:
        exp_dir: has or gets the list.
        utterances: of training and validation.
        max_bad: share of them that may be bad.
        is_resumed: whether what is listed already counts.
        writes: whether this process writes the list.
    """

    def __init__(self, exp_dir: Path, utterances: int, max_bad: float, *, is_resumed: bool, writes: bool) -> None:
        self._folder, self._writes = exp_dir, writes
        self._bad = BadFiles(exp_dir, utterances, max_bad, key="data.max_bad")
        if is_resumed:
            self._bad.found += read_bad_files(exp_dir)
        elif writes:
            write_bad_files(exp_dir, ())

    def add(self, found: Iterable[BadFile]) -> None:
        """Count and list what is new.

        Raises:
            UserError: there are more than may be.
        """
        known = {item.utterance_id for item in self._bad.found}
        new = [item for item in found if item.utterance_id not in known]
        if not new:
            return
        try:
            self._bad.add(new)
        finally:
            if self._writes:
                write_bad_files(self._folder, self._bad.found)
        for item in new:
            log.warning("%s: left out, see %s", item.reason, self._folder / BAD_FILES)

    def add_rows(self, utterances: Manifest, reasons: Mapping[int, str]) -> None:
        """The same of rows of the training set's utterances."""
        named = {utterances[row]: reason for row, reason in reasons.items()}
        self.add(BadFile(item.utterance_id, str(item.path), reason) for item, reason in named.items())
