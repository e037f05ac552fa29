"""svt score: cosine, S-Norm and AS-Norm scores of a trial list."""

from __future__ import annotations

import logging
from dataclasses import asdict

import numpy as np

from svtoolkit.config import ScoreConfig
from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores, embedded_part, mean_embedding, speaker_means
from svtoolkit.scoring.embedding_file import read_embeddings
from svtoolkit.scoring.normalisation import DEFAULT_TOP_N, METHODS, check_disjoint, normalise_scores
from svtoolkit.scoring.score_file import write_scores
from svtoolkit.system.output import say_next
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: ScoreConfig, command_line: str) -> int:
    """Score and write `enrol test score`; how the scores were made goes to <out>.yaml."""
    if config.normalisation not in ("none", *METHODS):
        raise UserError(f"normalisation is {config.normalisation!r}, expected none, {', '.join(METHODS)}")
    if config.top_n is not None and config.normalisation != "as-norm":
        raise UserError(f"top_n is for normalisation=as-norm, found normalisation={config.normalisation}; leave it out")
    trials = read_trials(config.trials)
    table = read_embeddings(config.embeddings)
    cohort, mean = _read_cohort(config)
    listed = len(trials)
    if config.allow_missing:
        trials = embedded_part(trials, table)
    missing = listed - len(trials)
    scores = cosine_scores(table, trials, mean=mean)
    top_n = _choose_top_n(config, cohort)
    if cohort is not None and config.normalisation != "none":
        method = config.normalisation
        with show_progress(method, len(trials.utterances), "utt") as progress:
            scores = normalise_scores(
                scores, trials, table, cohort, method=method, top_n=top_n, mean=mean, progress=progress.update
            )
    write_scores(config.out, trials, scores)
    facts = {
        "trials_sha256": hash_trials(config.trials),
        "scored": len(trials),
        "missing": missing,
        "cohort_speakers": None if cohort is None else len(cohort),
        "top_n": top_n,
    }
    write_record(f"{config.out}.yaml", command_line, asdict(config) | facts)
    log.info("%d trials scored (%s), %d left out -> %s", len(trials), config.normalisation, missing, config.out)
    of_speakers = [] if config.utt2spk is None else ["--utt2spk", config.utt2spk]
    allowing = ["allow_missing=true"] if missing else []
    say_next("svt", "evaluate", "--scores", config.out, "--trials", config.trials, *of_speakers, *allowing)
    return 0


def _choose_top_n(config: ScoreConfig, cohort: EmbeddingTable | None) -> int | None:
    """As given; without a number what fits the cohort, which the log says where that is less than usual."""
    if config.normalisation != "as-norm" or cohort is None:
        return None
    if config.top_n is not None:
        return config.top_n
    if len(cohort) < DEFAULT_TOP_N:
        log.info("the cohort has %d speakers: all are taken, top_n is usually %d", len(cohort), DEFAULT_TOP_N)
    return min(DEFAULT_TOP_N, len(cohort))


def _read_cohort(config: ScoreConfig) -> tuple[EmbeddingTable | None, np.ndarray | None]:
    """Speaker means of the cohort and, with subtract_mean, the mean of all its utterances."""
    if config.cohort is None:
        if config.normalisation != "none" or config.subtract_mean:
            raise UserError(
                f"normalisation={config.normalisation} subtract_mean={config.subtract_mean} need a cohort; "
                "give cohort=embeddings.scp and cohort_utt2spk=utt2spk of speakers outside the evaluation"
            )
        return None, None
    if config.cohort_utt2spk is None:
        raise UserError("cohort is given without cohort_utt2spk; name the utt2spk of the cohort's data directory")
    utterances = read_embeddings(config.cohort)
    utt2spk = read_utt2spk(config.cohort_utt2spk)
    if config.utt2spk is not None:
        check_disjoint(utt2spk.values(), read_utt2spk(config.utt2spk).values())
    elif config.normalisation != "none":
        log.warning("utt2spk is not given: whether cohort and evaluation share speakers is not checked")
    mean = mean_embedding(utterances) if config.subtract_mean else None
    return speaker_means(utterances, utt2spk), mean
