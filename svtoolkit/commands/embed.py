"""svt embed: embeddings of whole utterances as Kaldi ark/scp."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from svtoolkit.config import EmbedConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.embedding_file import write_embeddings
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)


def run(config: EmbedConfig, command_line: str) -> int:
    """Extract; the exit status is 1 where an utterance has no embedding (the others are written)."""
    if config.threads is not None:
        if config.threads < 1:
            raise UserError(f"threads is {config.threads}, expected 1 or more, or null")
        torch.set_num_threads(config.threads)
    model = SpeakerModel.load(
        config.model,
        device=config.device,
        precision=config.precision,
        channel=config.channel,
        resample=config.resample,
        batch_size=config.batch_size,
        num_workers=config.num_workers,
    )
    utterances = KaldiDir.read(config.data, config.root).utterances()
    with tqdm(total=len(utterances), unit="utt", desc="embed", dynamic_ncols=True) as bar:
        extraction = model.extractor.extract(utterances, progress=bar.update)
    if not extraction.utterances:
        reason = next(iter(extraction.failures.values()), "the data directory is empty")
        raise UserError(f"{config.data}: no utterance could be embedded; the first reason: {reason}")
    scp = write_embeddings(config.out, extraction.utterances, extraction.embeddings)
    facts = {
        "utterances": len(extraction.utterances),
        "failures": extraction.failures,
        "audio_seconds": round(extraction.audio_seconds, 3),
        "wall_seconds": round(extraction.wall_seconds, 3),
    }
    write_record(f"{config.out}.yaml", command_line, asdict(config) | facts)
    log.info(
        "%d embeddings -> %s; %.0f s of audio in %.1f s, real-time factor %.4f",
        len(extraction.utterances), scp, extraction.audio_seconds, extraction.wall_seconds, extraction.real_time_factor,
    )  # fmt: skip
    lists = find_trials(config.data)
    if lists and not extraction.failures:
        scores = str(Path(config.out).parent / "scores" / lists[0].name)
        say_next("svt", "score", "--trials", str(lists[0]), "--embeddings", str(scp), "--out", scores)
    for utterance, reason in extraction.failures.items():
        print(f"failed: {utterance}: {reason}", file=sys.stderr)
    if extraction.failures:
        print(f"error: {len(extraction.failures)} of {len(utterances)} utterances have no embedding", file=sys.stderr)
    return 1 if extraction.failures else 0
