"""svt quality: quality measures of utterances, for svt fuse."""

from __future__ import annotations

import logging
from dataclasses import asdict

from svtoolkit.config import QualityConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.cosine import EmbeddingTable, speaker_means
from svtoolkit.scoring.embedding_file import read_embeddings
from svtoolkit.scoring.quality.measured import Measured, measure_quality
from svtoolkit.scoring.quality.table import write_quality
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: QualityConfig, command_line: str) -> int:
    """Measure and write; how it was measured goes to <out>.yaml."""
    if config.jobs < 1:
        raise UserError(f"jobs is {config.jobs}, expected 1 or more")
    for key in ("cohort_utt2spk", "top_n"):
        if getattr(config, key) is not None and config.cohort is None:
            raise UserError(f"{key} is of a cohort, and cohort is null; give cohort=FILE.scp, or leave it out")
    measured = Measured(
        KaldiDir.read(config.data, config.root).utterances(),
        None if config.embeddings is None else read_embeddings(config.embeddings),
        _read_cohort(config),
        config.top_n,
        config.channel,
        config.jobs,
    )
    with show_progress("quality", len(config.measures), "measure") as progress:
        table = measure_quality(measured, config.measures, lambda name: progress.update(1))
    write_quality(config.out, table)
    write_record(f"{config.out}.yaml", command_line, asdict(config) | {"utterances": len(table.utterances)})
    log.info("%s of %d utterances -> %s", ", ".join(table.measures), len(table.utterances), config.out)
    return 0


def _read_cohort(config: QualityConfig) -> EmbeddingTable | None:
    """Its members: by default its speakers' means."""
    if config.cohort is None:
        return None
    rows = read_embeddings(config.cohort)
    return rows if config.cohort_utt2spk is None else speaker_means(rows, read_utt2spk(config.cohort_utt2spk))
