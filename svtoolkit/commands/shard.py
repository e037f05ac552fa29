"""svt shard: the audio of a data directory in tar shards."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

from svtoolkit.config import ShardConfig
from svtoolkit.data.bad_files import BAD_FILES
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.runs.provenance import DATA_RECORD, write_record
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: ShardConfig, command_line: str) -> int:
    """Write the shards, or those that a stopped run left unwritten."""
    kaldi_dir = KaldiDir.read(config.data, config.root)
    out = Path(config.out)
    with show_progress("shard", len(kaldi_dir.utt2spk), "utt") as progress:
        written = write_shards(kaldi_dir, **asdict(config), tables_from=config.data, progress=progress.update)
    # The directory that was sharded is its source, as in what `svt prepare` records.
    write_record(out / DATA_RECORD, command_line, {"source": config.data, **asdict(config)})
    hours = written.seconds / 3600
    log.info(
        "%s: %d utterances, %.2f h in %d shards (%d reused), %d left out",
        out, written.utterances, hours, written.shards, written.reused, len(written.bad),
    )  # fmt: skip
    if written.bad:
        log.info("%s: what was left out, and why", out / BAD_FILES)
    return 0
