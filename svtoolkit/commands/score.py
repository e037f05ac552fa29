"""svt score: cosines of a trial list or ratios of PLDA, and their Z-, T-, S- or AS-Norm."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np

from svtoolkit.config import ScoreConfig
from svtoolkit.data.trials import Trials, hash_trials, read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.backends.backend import Backend
from svtoolkit.scoring.backends.backend_file import read_backend
from svtoolkit.scoring.backends.embedding_model import read_applied
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores, embedded_part, mean_embedding, speaker_means
from svtoolkit.scoring.enrolment import MEANS, EnrolledTrials, enrol_models, read_enrolments
from svtoolkit.scoring.normalisation import DEFAULT_TOP_N, METHODS, check_disjoint, normalise_scores
from svtoolkit.scoring.score_file import FORMATS, write_scores
from svtoolkit.system.output import say_next
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)


def run(config: ScoreConfig, command_line: str) -> int:
    """Score and write `enrol test score`; how the scores were made goes to <out>.yaml."""
    _check(config)
    listed = read_trials(config.trials)
    backend = None if config.backend is None else read_backend(config.backend)
    table = read_applied(config.embeddings, backend, config.backend)
    cohort, mean = _read_cohort(config, backend)
    enrolled = _enrol(config, table, listed)
    trials, table = enrolled.trials, enrolled.table
    top_n = _choose_top_n(config, cohort)
    facts = {
        "trials_sha256": hash_trials(config.trials),
        "scored": len(enrolled.listed),
        "missing": len(listed) - len(enrolled.listed),
        "cohort_speakers": None if cohort is None else len(cohort),
        "top_n": top_n,
        "backend_kind": None if backend is None else backend.kind,
    }
    settings = asdict(config) | facts
    comparison = None if backend is None else backend.comparison
    scores = comparison.scores(table, trials) if comparison else cosine_scores(table, trials, mean=mean)
    plain = settings | {"out": config.cosine_out, "normalisation": "none", "top_n": None}

    def write(found: np.ndarray, facts: dict[str, Any]) -> None:
        write_scores(facts["out"], enrolled.listed, enrolled.join(found), layout=config.format)
        write_record(f"{facts['out']}.yaml", command_line, facts)

    with ThreadPoolExecutor(1) as beside:  # the cosines are written while the cohort is compared with
        cosines = beside.submit(write, scores, plain) if config.cosine_out is not None else None
        if cohort is not None and config.normalisation != "none":
            method = config.normalisation
            twice = comparison is not None  # sides differ
            total = sum(len(np.unique(side)) for side in trials.numbered) if twice else len(trials.utterances)
            with show_progress(method, total, "utt") as progress:
                scores = normalise_scores(
                    scores, trials, table, cohort,
                    method=method, top_n=top_n, mean=mean, comparison=comparison, progress=progress.update,
                )  # fmt: skip
        if cosines is not None:
            cosines.result()
    write(scores, settings)
    how = config.normalisation if backend is None else f"{backend.kind}, {config.normalisation}"
    log.info(
        "%d trials scored (%s), %d left out -> %s",
        facts["scored"], how, facts["missing"], config.out,
    )  # fmt: skip
    of_speakers = [] if config.utt2spk is None else ["--utt2spk", config.utt2spk]
    allowing = ["allow_missing=true"] if facts["missing"] else []
    say_next("svt", "evaluate", "--scores", config.out, "--trials", config.trials, *of_speakers, *allowing)
    return 0


def _check(config: ScoreConfig) -> None:
    """Refuse what the words alone contradict, before anything is read."""
    if config.normalisation not in ("none", *METHODS):
        raise UserError(f"normalisation is {config.normalisation!r}, expected none, {', '.join(METHODS)}")
    if config.format not in FORMATS:
        raise UserError(f"format is {config.format!r}, expected {' or '.join(FORMATS)}")
    if config.top_n is not None and config.normalisation != "as-norm":
        raise UserError(f"top_n is for normalisation=as-norm, found normalisation={config.normalisation}; leave it out")
    if config.cosine_out is not None and (config.normalisation == "none" or config.cosine_out == config.out):
        raise UserError(
            f"cosine_out={config.cosine_out} is for the cosines beside normalised scores, found "
            f"normalisation={config.normalisation} out={config.out}; leave it out, or give a file of its own"
        )
    if config.backend is not None and config.subtract_mean:
        raise UserError(
            f"subtract_mean=true does not go with backend={config.backend}, which subtracts the mean of its training "
            "speakers; leave it out"
        )
    if config.enrolment_mean not in MEANS:
        raise UserError(f"enrolment_mean is {config.enrolment_mean!r}, expected {' or '.join(MEANS)}")


def _enrol(config: ScoreConfig, table: EmbeddingTable, listed: Trials) -> EnrolledTrials:
    """The trials that can be scored, of models where there is an enrolment map."""
    if config.enrolments is not None:
        models = read_enrolments(config.enrolments)
        return enrol_models(table, listed, models, mean=config.enrolment_mean, allow_missing=config.allow_missing)
    trials = embedded_part(listed, table) if config.allow_missing else listed
    return EnrolledTrials(table, trials, trials, np.ones(len(trials), dtype=np.int64))


def _choose_top_n(config: ScoreConfig, cohort: EmbeddingTable | None) -> int | None:
    """As given; without a number what fits the cohort, which the log says where that is less than usual."""
    if config.normalisation != "as-norm" or cohort is None:
        return None
    if config.top_n is not None:
        return config.top_n
    if len(cohort) < DEFAULT_TOP_N:
        log.info("the cohort has %d speakers: all are taken, top_n is usually %d", len(cohort), DEFAULT_TOP_N)
    return min(DEFAULT_TOP_N, len(cohort))


def _read_cohort(config: ScoreConfig, backend: Backend | None) -> tuple[EmbeddingTable | None, np.ndarray | None]:
    """Members of the cohort, by default its speakers' means, and with subtract_mean the mean of all its rows."""
    if config.cohort is None:
        if config.normalisation != "none" or config.subtract_mean:
            raise UserError(
                f"normalisation={config.normalisation} subtract_mean={config.subtract_mean} need a cohort; "
                "give cohort=embeddings.scp and cohort_utt2spk=utt2spk of speakers outside the evaluation"
            )
        return None, None
    utterances = read_applied(config.cohort, backend, config.backend)
    utt2spk = None if config.cohort_utt2spk is None else read_utt2spk(config.cohort_utt2spk)
    if config.utt2spk is not None:
        names = utterances.utterances if utt2spk is None else utt2spk.values()
        check_disjoint(names, read_utt2spk(config.utt2spk).values())
    elif config.normalisation != "none":
        log.warning("utt2spk is not given: whether cohort and evaluation share speakers is not checked")
    mean = mean_embedding(utterances) if config.subtract_mean else None
    return utterances if utt2spk is None else speaker_means(utterances, utt2spk), mean
