"""svt enrolled: the speakers of a store."""

from __future__ import annotations

import json
from dataclasses import asdict

from svtoolkit.config import EnrolledConfig
from svtoolkit.enrolment.store import SpeakerStore
from svtoolkit.errors import UserError


def run(config: EnrolledConfig, _command_line: str) -> int:
    """Print a line a speaker, and what the store is of."""
    if config.format not in ("text", "json"):
        raise UserError(f"format is {config.format!r}, expected text or json")
    store = SpeakerStore(config.store)
    speakers, model = store.speakers(), store.model()
    if config.format == "json":
        print(json.dumps({"model": asdict(model), "speakers": [asdict(each) for each in speakers]}))
        return 0
    for each in speakers:
        print(f"{each.name}: {each.recordings} {'recording' if each.recordings == 1 else 'recordings'}, {each.created}")
    threshold = "none"
    if model.threshold is not None:
        threshold = f"{model.threshold:.4f} ({model.operating_point or 'given'})"
    print(f"{len(speakers)} speakers; model {model.name} ({model.digest[:12]}), threshold {threshold}")
    return 0
