"""svt verify: do two recordings share a speaker?"""

from __future__ import annotations

from svtoolkit.config import VerifyConfig
from svtoolkit.scoring.speaker_model import SpeakerModel


def run(config: VerifyConfig, _command_line: str) -> int:
    """Print the cosine and, where a threshold is known, the decision; nothing is written."""
    model = SpeakerModel.load(config.model, device=config.device, channel=config.channel, resample=config.resample)
    score = model.similarity(config.enrol, config.test)
    print(f"score {score:.4f}")
    threshold = model.threshold if config.threshold is None else config.threshold
    if threshold is None:
        print("no decision: the model has no threshold; give threshold=... or store one with `svt evaluate`")
        return 0
    decision = "same speaker" if score >= threshold else "different speakers"
    print(f"{decision} (threshold {threshold:.4f})")
    return 0
