"""svt convert: a corpus decoded once, to files that are read by slice."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

from svtoolkit.config import ConvertConfig
from svtoolkit.data.conversion import convert_corpus
from svtoolkit.runs.provenance import DATA_RECORD, write_record
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: ConvertConfig, command_line: str) -> int:
    """Convert what a stopped run left to do, and write the data directory of it all."""
    table = Path(config.source) / "utt2spk"
    total = len(table.read_bytes().splitlines()) if table.is_file() else None
    with show_progress("convert", total, "utt") as progress:
        kaldi_dir = convert_corpus(**asdict(config), progress=progress.update)
    write_record(Path(config.out) / DATA_RECORD, command_line, asdict(config))
    hours = sum(kaldi_dir.utt2dur.values()) / 3600
    counts = len(kaldi_dir.speakers), len(kaldi_dir.utt2spk)
    log.info("%s: %d speakers, %d utterances, %.2f h", config.out, *counts, hours)
    return 0
