"""svt features: the filter bank of whole utterances in Kaldi archives."""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path

from svtoolkit.config import ComputeFeaturesConfig
from svtoolkit.data.bad_files import BAD_FILES
from svtoolkit.data.feature_writer import compute_features
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.runs.provenance import DATA_RECORD, write_record
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: ComputeFeaturesConfig, command_line: str) -> int:
    """Compute the features, or those that a stopped run left to do."""
    table = Path(config.data) / "utt2spk"
    total = len(table.read_bytes().splitlines()) if table.is_file() else None
    with show_progress("features", total, "utt") as progress:
        written = compute_features(config, partial(front_end_of, config.features), progress.update)
    # The directory of the audio is the source, as in what `svt prepare` records.
    write_record(Path(config.out) / DATA_RECORD, command_line, {"source": config.data, **asdict(config)})
    hours = written.seconds / 3600
    log.info(
        "%s: %d utterances, %.2f h in %d archives (%d reused), %.1f MB an hour, %d left out",
        config.out, written.utterances, hours, written.archives, written.reused, written.size / 1e6 / hours,
        len(written.bad),
    )  # fmt: skip
    if written.bad:
        log.info("%s: what was left out, and why", Path(config.out) / BAD_FILES)
    return 0
