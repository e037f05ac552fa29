"""svt embed: embeddings of whole utterances as Kaldi ark/scp."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

from svtoolkit import __version__
from svtoolkit.checkpoints.exported import is_exported
from svtoolkit.config import EmbedConfig, FeaturesConfig
from svtoolkit.config.scoring import MFCC_STATISTICS
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.bad_files import check_max_bad, count_allowed
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.validation import find_trials
from svtoolkit.deploy.any_model import refuse_runtime
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.crop_extraction import CropExtractor
from svtoolkit.scoring.embedding_file import write_embeddings
from svtoolkit.scoring.embedding_parts import Extractor, digest_of, resumable_parts
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.output import say_next
from svtoolkit.system.processes import count_cores
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: EmbedConfig, command_line: str) -> int:
    """Extract; the exit status is 1 where more utterances than may be have no embedding (the others are written)."""
    check_max_bad(config.max_bad)
    if config.threads is not None and config.threads < 1:
        raise UserError(f"threads is {config.threads}, expected 1 or more, or null")
    source = find_source(Path(config.data), config.source, key="source")
    if config.model == MFCC_STATISTICS:
        config, extractor, utterances, made_of = _of_statistics(config, source)
    elif is_exported(config.model):
        config, extractor, utterances, made_of = _of_exported(config, source)
    else:
        config, extractor, utterances, made_of = _of_model(config, source)
    seconds = extractor.batch_seconds
    with resumable_parts(Path(f"{config.out}.parts"), made_of, seconds) as parts:
        with show_progress("embed", len(utterances), "utt") as progress:
            parts.extract(extractor, utterances, progress.update)
        failures = {utterances[row].utterance_id: parts.failures[row] for row in sorted(parts.failures)}
        rows = parts.rows
        if not len(rows):
            reason = next(iter(failures.values()), "the data directory is empty")
            raise UserError(f"{config.data}: no utterance could be embedded; the first reason: {reason}")
        names = [utterances[row].utterance_id for row in rows]
        scp = write_embeddings(config.out, names, parts.vectors())
        facts = {
            "model_sha256": made_of["weights"],
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


Prepared: TypeAlias = "tuple[EmbedConfig, Extractor, list[Utterance], dict[str, object]]"
"""The settings with the model pinned, what embeds, what is embedded, and all that the embeddings depend on."""


def _of_exported(config: EmbedConfig, source: str) -> Prepared:
    """Of a file of `svt export`, without torch."""
    from svtoolkit.runtime.extraction import RuntimeExtractor
    from svtoolkit.runtime.model import RuntimeModel

    _refuse_unusual(config, "is an exported file, which says its features and precision, and runs on the CPU")
    if source == "features":
        raise UserError(f"{config.data}: holds features, and an exported file embeds audio; give a directory of audio")
    utterances = KaldiDir.read(config.data, config.root, source).utterances()
    threads = config.threads or count_cores()
    streams = min(threads, max(1, len(utterances)))
    model = RuntimeModel.load(
        config.model,
        runtime=config.runtime or "onnx",
        threads=threads,
        streams=streams,
        channel=config.channel,
        resample=config.resample,
    )
    extractor = _of_crops(config, RuntimeExtractor(model, config.num_workers, streams, config.batch_seconds))
    made_of = _made_of(
        config, hash_file(Path(config.model)), model.exported.model, model.exported.features, utterances, None,
        model.runtime,
    )  # fmt: skip
    return config, extractor, utterances, made_of


def _of_statistics(config: EmbedConfig, source: str) -> Prepared:
    """Means and deviations of MFCCs."""
    import torch

    from svtoolkit.scoring.mfcc_statistics import statistics_extractor, statistics_features

    _refuse_unusual(config, "is no network, and is computed on the CPU", runtime=(None,))
    if source == "features":
        raise UserError(f"{config.data}: holds features, and {config.model} is of audio; give a directory of audio")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    extractor = statistics_extractor(channel=config.channel, resample=config.resample, num_workers=config.num_workers)
    utterances = KaldiDir.read(config.data, config.root, source).utterances()
    network = {"name": MFCC_STATISTICS}
    return config, extractor, utterances, _made_of(config, "", network, statistics_features(), utterances, None, "cpu")


def _refuse_unusual(config: EmbedConfig, why: str, **further: tuple[object, ...]) -> None:
    """Refuse settings of networks in torch; ``further``: keys and the values that they may have."""
    usual = {"device": ("auto", "cpu"), "precision": ("fp32",), "front_end": (None,), "memory_gib": (None,), **further}
    for key, values in usual.items():
        if getattr(config, key) not in values:
            raise UserError(f"{key} is {getattr(config, key)!r:.80}, but {config.model} {why}; leave it out")


def _of_model(config: EmbedConfig, source: str) -> Prepared:
    """Of any other model, by torch."""
    import torch

    from svtoolkit.checkpoints.releases import pinned, require_release
    from svtoolkit.planning.embedding_memory import fit_extractor
    from svtoolkit.scoring.speaker_model import SpeakerModel

    refuse_runtime(config.runtime, config.model)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    config = replace(config, model=pinned(config.model))
    model = SpeakerModel.load(
        config.model,
        device=config.device,
        precision=config.precision,
        channel=config.channel,
        resample=config.resample,
        batch_seconds=config.batch_seconds,
        batch_size=config.batch_size,
        threads=torch.get_num_threads(),
        num_workers=config.num_workers,
        stored=source == "features",
        front_end=config.front_end,
    )
    description = model.description
    form = _check_features(config, description.features) if source == "features" else None
    utterances = KaldiDir.read(config.data, config.root, source).utterances()
    fit_extractor(model.extractor, description, config.memory_gib)
    digest, device = hash_file(require_release(config.model).weights), model.extractor.device.type
    made_of = _made_of(config, digest, description.model, description.features, utterances, form, device)
    return config, _of_crops(config, model.extractor), utterances, made_of


def _of_crops(config: EmbedConfig, extractor: Extractor) -> Extractor:
    """What embeds crops of utterances, where there are to be some."""
    if config.crops is None:
        return extractor
    if extractor.stored:
        raise UserError(f"crops is {config.crops}, but {config.data} holds features, no audio; leave it out")
    return CropExtractor(extractor, config.crops, config.crop_seconds, config.num_workers)


def _check_features(config: EmbedConfig, features: FeaturesConfig) -> str:
    """Refuse features that are not those of the model, and settings that act on audio; returns their format."""
    for key, value in (("channel", config.channel), ("resample", config.resample or None)):
        if value is not None:
            raise UserError(f"{key} is {str(value).lower()}, but {config.data} holds features, no audio; leave it out")
    stored = StoredFeatures.read(config.data)
    differing = stored.difference(features)
    if differing is not None:
        key, wanted, there = differing
        raise UserError(
            f"{config.model}: features.{key} of the model is {wanted}, but the features of {config.data} were computed "
            f"with {there} ({stored.file}); compute them with `svt features features.{key}={wanted}`, or embed audio"
        )
    return stored.form


def _made_of(
    config: EmbedConfig, weights: str, network: Mapping[str, Any], features: FeaturesConfig,
    utterances: Sequence[Utterance], form: str | None, device: str,
) -> dict[str, object]:  # fmt: skip
    """All that the embeddings depend on, to the last bit; ``form``: of stored features, None of audio."""
    chosen = ["channel", "resample", "precision", "batch_seconds", "batch_size", "threads"]
    if config.crops is not None:
        chosen += ["crops", "crop_seconds"]
    return {
        "weights": weights,
        "model": network,
        "features": asdict(features),
        "data": digest_of(utterances),
        "stored": form,
        "device": device,
        "settings": {name: getattr(config, name) for name in chosen},
        "version": __version__,
    }
