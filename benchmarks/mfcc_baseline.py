"""What speaker verification gets without a network: the figure that a trained one has to beat.

An utterance is the mean and standard deviation over time of 24 Kaldi MFCCs (40 mel bands from 20 Hz to half the sample
rate, no liftering, no dither, energy replaced by C0). These 48 numbers are standardised and then whitened within
speakers (WCCN: A. O. Hatch, S. Kajarekar, A. Stolcke, Interspeech 2006), both on the training speakers, and trials are
scored by cosine, then by AS-Norm against the means of the training speakers.

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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np

from benchmarks.machine import write_record
from svtoolkit.audio.files import read_audio
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.bootstrap import bootstrap_interval, trial_speakers
from svtoolkit.scoring.calibration import min_cllr
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores, speaker_means
from svtoolkit.scoring.metrics import equal_error_rate, min_dcf
from svtoolkit.scoring.normalisation import normalise_scores

CEPSTRA = 24
MEL_BANDS = 40
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
    """MFCC statistics of one data directory; float64, shape (utterances, 2 * CEPSTRA)."""

    utterances: list[str]
    speakers: list[str]
    matrix: np.ndarray


def mfcc_statistics(utterance: Utterance, sample_rate: int) -> np.ndarray:
    """Mean and standard deviation over time of the MFCCs of one utterance; float64, shape (2 * CEPSTRA,)."""
    samples = read_audio(utterance.path, sample_rate=sample_rate, start=utterance.offset, duration=utterance.duration)
    options = knf.MfccOptions()
    options.frame_opts.samp_freq = sample_rate
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = MEL_BANDS
    options.num_ceps = CEPSTRA
    options.cepstral_lifter = 0.0
    options.use_energy = False
    extractor = knf.OnlineMfcc(options)
    extractor.accept_waveform(sample_rate, (samples * 32768).tolist())
    extractor.input_finished()
    if not extractor.num_frames_ready:
        raise UserError(f"{utterance.path}: {len(samples)} samples make no frame of 25 ms; drop the utterance")
    frames = np.array([extractor.get_frame(i) for i in range(extractor.num_frames_ready)], dtype=np.float64)
    return np.concatenate([frames.mean(axis=0), frames.std(axis=0)])


def collect_statistics(folder: Path, root: Path | None, sample_rate: int, workers: int) -> Statistics:
    utterances = KaldiDir.read(folder, root).utterances()
    with ProcessPoolExecutor(workers) as pool:
        rows = list(pool.map(partial(mfcc_statistics, sample_rate=sample_rate), utterances, chunksize=32))
    return Statistics([u.utterance_id for u in utterances], [u.speaker for u in utterances], np.array(rows))


def join(parts: Sequence[Statistics]) -> Statistics:
    return Statistics(
        [utterance for part in parts for utterance in part.utterances],
        [speaker for part in parts for speaker in part.speakers],
        np.concatenate([part.matrix for part in parts]),
    )


class Whitening:
    """Standardisation, then the square root of the inverse covariance within speakers, fitted on training data."""

    def __init__(self, train: Statistics) -> None:
        self.mean, self.std = train.matrix.mean(axis=0), train.matrix.std(axis=0)
        rows = (train.matrix - self.mean) / self.std
        _, speaker = np.unique(train.speakers, return_inverse=True)
        counts = np.bincount(speaker)
        if len(rows) - len(counts) < rows.shape[1]:
            raise UserError(
                f"{len(rows)} training utterances of {len(counts)} speakers cannot give a covariance within speakers "
                f"of {rows.shape[1]} dimensions; expected {rows.shape[1]} utterances more than speakers"
            )
        means = np.zeros((len(counts), rows.shape[1]))
        np.add.at(means, speaker, rows)
        within = rows - (means / counts[:, None])[speaker]
        self.matrix = np.linalg.cholesky(np.linalg.inv(within.T @ within / len(rows)))

    def apply(self, statistics: Statistics) -> EmbeddingTable:
        return EmbeddingTable(statistics.utterances, (statistics.matrix - self.mean) / self.std @ self.matrix)


def evaluate(
    train_names: list[str], train: Statistics, evaluation: Statistics, trial_list: Path, resamples: int
) -> Result:
    trials = read_trials(trial_list)
    whitening = Whitening(train)
    table = whitening.apply(evaluation)
    scores = cosine_scores(table, trials)
    cohort = speaker_means(whitening.apply(train), dict(zip(train.utterances, train.speakers, strict=True)))
    normalised = normalise_scores(scores, trials, table, cohort, top_n=TOP_N)
    utt2spk = dict(zip(evaluation.utterances, evaluation.speakers, strict=True))
    interval = bootstrap_interval(scores, *trial_speakers(trials, utt2spk), trials.target, resamples=resamples)
    targets = int(trials.target.sum())
    return Result(
        train=train_names,
        train_speakers=len(set(train.speakers)),
        train_utterances=len(train.utterances),
        trials=trial_list.as_posix(),
        trials_sha256=hash_trials(trial_list),
        targets=targets,
        nontargets=len(trials) - targets,
        eval_speakers=len(set(evaluation.speakers)),
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
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that read audio")
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
            ["numpy", "kaldi-native-fbank"],
            seconds=round(time.perf_counter() - start, 1),
            results=[asdict(result) for result in results],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
