"""svt validate: every fault of a data directory, or a repaired copy of it."""

from __future__ import annotations

import logging
import sys

from tqdm import tqdm

from svtoolkit.config import ValidateConfig
from svtoolkit.data.repair import repair
from svtoolkit.data.validation import validate

log = logging.getLogger(__name__)


def run(config: ValidateConfig) -> int:
    """Print the faults; the exit status is 1 where there is one (with fix: where the copy could not be made)."""
    options = {
        "root": config.root,
        "sample_rate": config.sample_rate,
        "channel": config.channel,
        "against": config.against,
        "jobs": config.jobs,
    }
    if config.fix is not None:
        repaired = repair(config.data, config.fix, **options)
        for utterance, reason in repaired.dropped:
            print(f"dropped {utterance}: {reason}")
        for name in repaired.rewritten:
            print(f"rewritten: {name}")
        print(f"{config.fix}: written, {len(repaired.dropped)} utterances dropped; {config.data} is untouched")
        return 0
    with tqdm(unit="file", desc="validate", dynamic_ncols=True, disable=not config.check_audio) as bar:
        found = validate(
            config.data,
            check_audio=config.check_audio,
            progress=lambda finished: bar.update(finished - bar.n),
            **options,
        )
    for fault in found.faults:
        print(f"{config.data}/{fault}", file=sys.stderr)
    rates = ", ".join(f"{count} files at {rate} Hz" for rate, count in sorted(found.rates.items()))
    print(f"{config.data}: {found.speakers} speakers, {found.utterances} utterances, {found.hours:.2f} h; {rates}")
    if found.ok:
        print("no fault found")
        return 0
    print(
        f"error: {len(found.faults)} faults; `svt validate {config.data} --fix NEW_DIR` writes a repaired copy",
        file=sys.stderr,
    )
    return 1
