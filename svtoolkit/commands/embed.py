"""svt embed: embeddings of whole utterances as Kaldi ark/scp."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from svtoolkit.config import EmbedConfig
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.embedding_file import write_embeddings
from svtoolkit.scoring.speaker_model import SpeakerModel

log = logging.getLogger(__name__)


def run(config: EmbedConfig, command_line: str) -> int:
    """Extract; the exit status is 1 where an utterance has no embedding (the others are written)."""
    if config.threads is not None:
        if config.threads < 1:
            raise UserError(f"threads is {config.threads}, expected 1 or more, or null")
        torch.set_num_threads(config.threads)
    source = find_source(Path(config.data), config.source, key="source")
    model = SpeakerModel.load(
        config.model,
        device=config.device,
        precision=config.precision,
        channel=config.channel,
        resample=config.resample,
        batch_size=config.batch_size,
        num_workers=config.num_workers,
        stored=source == "features",
    )
    if source == "features":
        _check_features(config, model)
    utterances = KaldiDir.read(config.data, config.root, source).utterances()
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
    for utterance, reason in extraction.failures.items():
        print(f"failed: {utterance}: {reason}", file=sys.stderr)
    if extraction.failures:
        print(f"error: {len(extraction.failures)} of {len(utterances)} utterances have no embedding", file=sys.stderr)
    return 1 if extraction.failures else 0


def _check_features(config: EmbedConfig, model: SpeakerModel) -> None:
    """Refuse features that are not those of the model, and settings that act on audio."""
    for key, value in (("channel", config.channel), ("resample", config.resample or None)):
        if value is not None:
            raise UserError(f"{key} is {str(value).lower()}, but {config.data} holds features, no audio; leave it out")
    stored = StoredFeatures.read(config.data)
    differing = stored.difference(model.description.features)
    if differing is not None:
        key, wanted, there = differing
        raise UserError(
            f"{config.model}: features.{key} of the model is {wanted}, but the features of {config.data} were computed "
            f"with {there} ({stored.file}); compute them with `svt features features.{key}={wanted}`, or embed audio"
        )
