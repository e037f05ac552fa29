"""svt enrol: recordings of a speaker into a store of known speakers."""

from __future__ import annotations

import logging

import numpy as np

from svtoolkit.config import EnrolConfig
from svtoolkit.deploy.any_model import open_model
from svtoolkit.enrolment.model_identity import identify_model
from svtoolkit.enrolment.store import SpeakerStore, check_name
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)


def run(config: EnrolConfig, _command_line: str) -> int:
    """Embed all files, then add all or none."""
    check_name(config.name)
    if not config.wavs:
        raise UserError("svt enrol: found no audio file; add wavs=[a.wav,b.wav]")
    model = open_model(config)
    store, identity = SpeakerStore(config.store), identify_model(model, config.model, config.threshold)
    if store.path.exists() and store.speakers():
        store.check_model(identity)
    embeddings = np.stack([model.embed(file, min_voice=config.min_voice) for file in config.wavs])
    count = store.add(identity, config.name, embeddings, replace=config.replace)
    log.info("%s: %d %s in %s", config.name, count, "recording" if count == 1 else "recordings", config.store)
    return 0
