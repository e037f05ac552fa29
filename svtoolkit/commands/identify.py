"""svt identify: who of a store of known speakers is heard?

Exit status: 0 somebody known, 2 nobody known, 3 no threshold and so no decision, 1 an error.
"""

from __future__ import annotations

import json

from svtoolkit.config import IdentifyConfig
from svtoolkit.deploy.any_model import open_model
from svtoolkit.enrolment.model_identity import identify_model
from svtoolkit.enrolment.store import SpeakerStore, recognised
from svtoolkit.errors import UserError

KNOWN, NOBODY, NO_DECISION = 0, 2, 3


def run(config: IdentifyConfig, _command_line: str) -> int:
    """Print the closest speakers with their scores; nothing is written."""
    if config.format not in ("text", "json"):
        raise UserError(f"format is {config.format!r}, expected text or json")
    if config.n < 1:
        raise UserError(f"n is {config.n}, expected 1 or more")
    store = SpeakerStore(config.store)
    store.model()
    model = open_model(config)
    known = store.check_model(identify_model(model, config.model))
    threshold = known.threshold if config.threshold is None else config.threshold
    nearest = store.nearest(model.embed(config.wav, min_voice=config.min_voice), config.n)
    speaker = recognised(nearest, threshold)
    if config.format == "json":
        scores = [{"name": name, "score": score} for name, score in nearest]
        print(json.dumps({"wav": config.wav, "speaker": speaker, "threshold": threshold, "nearest": scores}))
    else:
        for name, score in nearest:
            print(f"{score:.4f} {name}")
        if threshold is None:
            print("no decision: neither store nor model has a threshold; give threshold=..., here or to `svt enrol`")
        else:
            print(f"{speaker or 'nobody known'} (threshold {threshold:.4f})")
    if threshold is None:
        return NO_DECISION
    return NOBODY if speaker is None else KNOWN
