"""svt calibrate: a threshold for a released model, from recordings of a few speakers of one's own."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import torch

from svtoolkit.checkpoints.released import read_description, write_description
from svtoolkit.checkpoints.releases import own_folder
from svtoolkit.config import CalibrateConfig
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, unit_vectors
from svtoolkit.scoring.own_threshold import MOST_RECORDINGS, OwnThreshold, choose_threshold
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)

FEW_SPEAKERS = 20


def run(config: CalibrateConfig, command_line: str) -> int:
    """Embed, compare all with all, store; recordings that cannot be used are named and left out."""
    if not 0 < config.fa_rate < 0.5:
        raise UserError(f"fa_rate is {config.fa_rate:g}; expected a share between 0 and 0.5, such as 0.01")
    if config.threads is not None:
        if config.threads < 1:
            raise UserError(f"threads is {config.threads}, expected 1 or more, or null")
        torch.set_num_threads(config.threads)
    folder = own_folder(config.model) if config.store else None
    model = SpeakerModel.of(config)
    kaldi_dir = KaldiDir.read(config.data, config.root)
    utterances = evenly(kaldi_dir, MOST_RECORDINGS)
    with show_progress("calibrate", len(utterances), "utt") as progress:
        extraction = model.extractor.extract(utterances, progress.update, min_voice=config.min_voice)
    for utterance, reason in extraction.failures.items():
        print(f"left out: {utterance}: {reason}", file=sys.stderr)
    if not extraction.utterances:
        raise UserError(f"{config.data}: no recording can be used; the lines above say why")
    table = EmbeddingTable(extraction.utterances, extraction.embeddings)
    vectors = unit_vectors(table, np.arange(len(table)))
    try:
        chosen = choose_threshold(vectors, [kaldi_dir.utt2spk[name] for name in table.utterances], config.fa_rate)
    except UserError as error:
        raise UserError(f"{config.data}: {error}") from error
    if folder is not None:
        description = read_description(folder)
        description.verification = section(chosen, config.fa_rate, command_line)
        write_description(folder, description)
    for line in told(chosen, config.fa_rate):
        log.info("%s", line)
    log.info("stored in %s" if config.store else "not stored in %s: store=false", config.model)
    return 0


def evenly(kaldi_dir: KaldiDir, most: int) -> list[Utterance]:
    """As many recordings of each speaker, spread over them, as make no more than ``most`` in all; at least two."""
    groups = kaldi_dir.spk2utt
    each = max(2, most // max(1, len(groups)))
    kept = [
        utterances[position]
        for utterances in groups.values()
        for position in sorted({round(at) for at in np.linspace(0, len(utterances) - 1, min(each, len(utterances)))})
    ]
    if len(kept) < len(kaldi_dir.utt2spk):
        log.info("%d of %d recordings are taken, %d of a speaker at most", len(kept), len(kaldi_dir.utt2spk), each)
    return [kaldi_dir.utterance(name) for name in kept]


def section(chosen: OwnThreshold, fa_rate: float, command_line: str) -> dict[str, Any]:
    """What model.yaml gets; ``p_fa`` is the promised rate, ``p_fa_seen`` what the few trials show."""
    calibration = chosen.calibration
    return {
        "threshold": chosen.threshold,
        "operating_point": f"fa_rate={fa_rate:g}",
        "p_miss": chosen.p_miss,
        "p_fa": fa_rate,
        "p_fa_interval": [chosen.fa_low, chosen.fa_high],
        "p_fa_seen": chosen.p_fa,
        "calibration": None if calibration is None else {"scale": calibration.scale, "offset": calibration.offset},
        "speakers": chosen.speakers,
        "recordings": chosen.recordings,
        "targets": chosen.targets,
        "nontargets": chosen.nontargets,
        "score_counts": chosen.score_counts,
        "command": command_line,
    }


def told(chosen: OwnThreshold, fa_rate: float) -> list[str]:
    """What the threshold is, and plainly what it rests on."""
    pairs = chosen.speakers * (chosen.speakers - 1) // 2
    misses = "unknown: no speaker has two recordings"
    if chosen.p_miss is not None:
        misses = f"{100 * chosen.p_miss:.1f} % of {chosen.targets} pairs of one speaker"
    lines = [
        f"threshold {chosen.threshold:.4f} for false alarms of {100 * fa_rate:g} %; misses: {misses}",
        f"rests on {chosen.speakers} speakers ({pairs} pairs of them), {chosen.recordings} recordings and "
        f"{chosen.nontargets} trials of different speakers, of which {100 * chosen.p_fa:.2g} % reach the threshold",
        f"with other speakers recorded alike, expect false alarms of {100 * chosen.fa_low:.2g} to "
        f"{100 * chosen.fa_high:.2g} %; other microphones, rooms and languages are not in these bounds",
    ]
    if chosen.speakers < FEW_SPEAKERS:
        lines.append(f"fewer than {FEW_SPEAKERS} speakers: each one more tells more than ten recordings of the same")
    return lines
