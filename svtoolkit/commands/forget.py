"""svt forget: delete a speaker from a store."""

from __future__ import annotations

import logging

from svtoolkit.config import ForgetConfig
from svtoolkit.enrolment.store import SpeakerStore

log = logging.getLogger(__name__)


def run(config: ForgetConfig, _command_line: str) -> int:
    """Delete name and embeddings."""
    SpeakerStore(config.store).delete(config.name)
    log.info("%s: deleted from %s", config.name, config.store)
    return 0
