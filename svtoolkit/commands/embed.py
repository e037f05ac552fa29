"""svt embed: embeddings of whole utterances as Kaldi ark/scp."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from svtoolkit import __version__
from svtoolkit.checkpoints.releases import pinned, require_release
from svtoolkit.config import EmbedConfig
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.bad_files import check_max_bad, count_allowed
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.planning.embedding_memory import fit_extractor
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.embedding_file import write_embeddings
from svtoolkit.scoring.embedding_parts import digest_of, resumable_parts
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.output import say_next
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: EmbedConfig, command_line: str) -> int:
    """Extract; the exit status is 1 where more utterances than may be have no embedding (the others are written)."""
    check_max_bad(config.max_bad)
    if config.threads is not None:
        if config.threads < 1:
            raise UserError(f"threads is {config.threads}, expected 1 or more, or null")
        torch.set_num_threads(config.threads)
    source = find_source(Path(config.data), config.source, key="source")
    config = replace(config, model=pinned(config.model))
    model = SpeakerModel.load(
        config.model,
        device=config.device,
        precision=config.precision,
        channel=config.channel,
        resample=config.resample,
        batch_seconds=config.batch_seconds,
        batch_size=config.batch_size,
        num_workers=config.num_workers,
        stored=source == "features",
        front_end=config.front_end,
    )
    form = _check_features(config, model) if source == "features" else None
    utterances = KaldiDir.read(config.data, config.root, source).utterances()
    fit_extractor(model.extractor, model.description, config.memory_gib)
    made_of, seconds = _made_of(config, model, utterances, form), model.extractor.batch_seconds
    with resumable_parts(Path(f"{config.out}.parts"), made_of, seconds) as parts:
        with show_progress("embed", len(utterances), "utt") as progress:
            parts.extract(model.extractor, utterances, progress.update)
        failures = {utterances[row].utterance_id: parts.failures[row] for row in sorted(parts.failures)}
        rows = parts.rows
        if not len(rows):
            reason = next(iter(failures.values()), "the data directory is empty")
            raise UserError(f"{config.data}: no utterance could be embedded; the first reason: {reason}")
        names = [utterances[row].utterance_id for row in rows]
        scp = write_embeddings(config.out, names, parts.vectors())
        facts = {
            "utterances": len(names),
            "failures": failures,
            "audio_seconds": round(parts.audio_seconds, 3),
            "wall_seconds": round(parts.wall_seconds, 3),
        }
        write_record(f"{config.out}.yaml", command_line, asdict(config) | facts)
    log.info(
        "%d embeddings -> %s; %.0f s of audio in %.1f s, real-time factor %.4f",
        len(names), scp, parts.audio_seconds, parts.wall_seconds, parts.wall_seconds / parts.audio_seconds,
    )  # fmt: skip
    lists = find_trials(config.data)
    if lists and not failures:
        scores = str(Path(config.out).parent / "scores" / lists[0].name)
        say_next("svt", "score", "--trials", str(lists[0]), "--embeddings", str(scp), "--out", scores)
    for utterance, reason in failures.items():
        print(f"failed: {utterance}: {reason}", file=sys.stderr)
    allowed = count_allowed(config.max_bad, len(utterances))
    if len(failures) > allowed:
        may = f"; with max_bad={config.max_bad:g} {allowed} may have none" if allowed else ""
        print(f"error: {len(failures)} of {len(utterances)} utterances have no embedding{may}", file=sys.stderr)
    return 1 if len(failures) > allowed else 0


def _check_features(config: EmbedConfig, model: SpeakerModel) -> str:
    """Refuse features that are not those of the model, and settings that act on audio; returns their format."""
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
    return stored.form


def _made_of(
    config: EmbedConfig, model: SpeakerModel, utterances: Sequence[Utterance], form: str | None
) -> dict[str, object]:
    """All that the embeddings depend on, to the last bit; ``form``: of stored features, None of audio."""
    chosen = ("channel", "resample", "precision", "batch_seconds", "batch_size", "threads")
    return {
        "weights": hash_file(require_release(config.model).weights),
        "model": model.description.model,
        "features": asdict(model.description.features),
        "data": digest_of(utterances),
        "stored": form,
        "device": model.extractor.device.type,
        "settings": {name: getattr(config, name) for name in chosen},
        "version": __version__,
    }
