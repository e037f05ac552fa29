"""What speaker verification gets without a network: the figure that a trained one has to beat.

An utterance is the mean and standard deviation over time of 24 MFCCs (`svt embed model=mfcc_statistics`). These 48
numbers are whitened, and whitened again within speakers (`svt backend kind=wccn whiten=true`), both on the training
speakers, and trials are scored by cosine, then by AS-Norm against the means of the training speakers.

    python -m benchmarks.mfcc_baseline --root DATA --output benchmarks/results/mfcc_baseline.json \\
        --data DATA/speechocean762 --data DATA/librispeech_mini

Each DIR has DIR/train, DIR/eval (Kaldi data directories) and DIR/eval/trials; other lists named trials* beside it are
scored too. With several DIRs the training data of all of them together is tried as well.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import write_record
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.backends.training import train_backend
from svtoolkit.scoring.bootstrap import bootstrap_interval, trial_speakers
from svtoolkit.scoring.calibration import min_cllr
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores, speaker_means
from svtoolkit.scoring.metrics import equal_error_rate, min_dcf
from svtoolkit.scoring.mfcc_statistics import statistics_extractor
from svtoolkit.scoring.normalisation import normalise_scores

TOP_N = 40  # closest training speakers of AS-Norm, as in the mini recipe


@dataclass(frozen=True)
class Result:
    """One row of the table; rates as shares, the interval over resampled speakers at 95 %."""

    train: list[str]
    train_speakers: int
    train_utterances: int
    trials: str
    trials_sha256: str
    targets: int
    nontargets: int
    eval_speakers: int
    eer: float
    eer_as_norm: float
    eer_low: float
    eer_high: float
    min_dcf_001: float
    min_cllr: float


@dataclass(frozen=True)
class Statistics:
    """MFCC statistics of one data directory, and who speaks."""

    table: EmbeddingTable
    utt2spk: dict[str, str]


def statistics_of(data: KaldiDir, workers: int, sample_rate: int = 16000) -> EmbeddingTable:
    """Of all utterances, or the reason why one has none."""
    extraction = statistics_extractor(sample_rate, num_workers=workers).extract(data.utterances())
    if extraction.failures:
        raise UserError(next(iter(extraction.failures.values())))
    return EmbeddingTable(extraction.utterances, extraction.embeddings)


def collect_statistics(folder: Path, root: Path | None, sample_rate: int, workers: int) -> Statistics:
    kaldi_dir = KaldiDir.read(folder, root)
    return Statistics(statistics_of(kaldi_dir, workers, sample_rate), kaldi_dir.utt2spk)


def join(parts: Sequence[Statistics]) -> Statistics:
    names = [name for part in parts for name in part.table.utterances]
    matrix = np.concatenate([part.table.matrix for part in parts])
    speakers = {name: speaker for part in parts for name, speaker in part.utt2spk.items()}
    return Statistics(EmbeddingTable(names, matrix), speakers)


def evaluate(
    train_names: list[str], train: Statistics, evaluation: Statistics, trial_list: Path, resamples: int
) -> Result:
    trials = read_trials(trial_list)
    whitening = train_backend("wccn", train.table, train.utt2spk, {"whiten": True})
    table = whitening.apply(evaluation.table)
    scores = cosine_scores(table, trials)
    cohort = speaker_means(whitening.apply(train.table), train.utt2spk)
    normalised = normalise_scores(scores, trials, table, cohort, top_n=TOP_N)
    sides = trial_speakers(trials, evaluation.utt2spk)
    interval = bootstrap_interval(scores, *sides, trials.target, resamples=resamples)
    targets = int(trials.target.sum())
    return Result(
        train=train_names,
        train_speakers=len(set(train.utt2spk.values())),
        train_utterances=len(train.table),
        trials=trial_list.as_posix(),
        trials_sha256=hash_trials(trial_list),
        targets=targets,
        nontargets=len(trials) - targets,
        eval_speakers=len(set(evaluation.utt2spk.values())),
        eer=equal_error_rate(scores, trials.target)[0],
        eer_as_norm=equal_error_rate(normalised, trials.target)[0],
        eer_low=interval.low,
        eer_high=interval.high,
        min_dcf_001=min_dcf(scores, trials.target, p_target=0.01)[0],
        min_cllr=min_cllr(scores, trials.target),
    )


def run(folders: list[Path], root: Path | None, sample_rate: int, workers: int, resamples: int) -> list[Result]:
    """All rows: each evaluation with its own training data, then with the training data of all folders."""
    trains = [collect_statistics(folder / "train", root, sample_rate, workers) for folder in folders]
    evals = [collect_statistics(folder / "eval", root, sample_rate, workers) for folder in folders]
    names = [(folder / "train").as_posix() for folder in folders]
    results = []
    for folder, name, train, evaluation in zip(folders, names, trains, evals, strict=True):
        for trial_list in sorted({folder / "eval" / "trials", *(folder / "eval").glob("trials*")}):
            results.append(evaluate([name], train, evaluation, trial_list, resamples))
            if len(folders) > 1:
                results.append(evaluate(names, join(trains), evaluation, trial_list, resamples))
    return results


def format_table(results: Sequence[Result]) -> str:
    lines = [
        "| trials | target + non-target | trained on | EER % (95 % over speakers) | EER % AS-Norm "
        "| minDCF(0.01) | minCllr |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for row in results:
        eer = f"{100 * row.eer:.2f} ({100 * row.eer_low:.2f} to {100 * row.eer_high:.2f})"
        lines.append(
            f"| {row.trials} | {row.targets} + {row.nontargets} | {', '.join(row.train)} "
            f"| {eer} | {100 * row.eer_as_norm:.2f} | {row.min_dcf_001:.3f} | {row.min_cllr:.3f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="EER of whitened MFCC statistics: the baseline without a network.")
    parser.add_argument("--data", type=Path, action="append", required=True, help="corpus with train/ and eval/trials")
    parser.add_argument("--root", type=Path, help="folder that relative paths of wav.scp are taken from")
    parser.add_argument("--sample-rate", type=int, default=16000, help="rate of the audio in Hz")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="threads that read audio")
    parser.add_argument("--resamples", type=int, default=1000, help="draws of speakers for the interval")
    parser.add_argument("--output", type=Path, help="JSON file to write besides the printed table")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    start = time.perf_counter()
    try:
        results = run(options.data, options.root, options.sample_rate, options.workers, options.resamples)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(format_table(results))
    if options.output:
        write_record(
            options.output,
            "mfcc_baseline",
            given,
            ["numpy", "torch"],
            seconds=round(time.perf_counter() - start, 1),
            results=[asdict(result) for result in results],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
