"""What a list of VoxCeleb1-H's size costs to score, to normalise and to evaluate.

    python -m benchmarks.scoring --output benchmarks/results/scoring.json

Made-up embeddings of the list's numbers (552,536 trials of 138,137 utterances of 1,190 speakers, 256 dimensions, a
cohort of 5,994, the 300 closest of it) go from files to files in processes of their own, one after the other in each
round; start-up and reading count. Ways:

- ``svt score``: cosines and AS-Norm in one pass, both files written;
- ``a trial at a time``: a cosine by scikit-learn's cosine_similarity for each line and a file written, then the whole
  matrix of cosines to the cohort sorted, line by line normalised, and a second file written, as WeSpeaker's scripts
  wespeaker/bin/score.py and score_norm.py go about it. It needs some 12 GB.

The results of the first are compared with float64 of a part of the trials. ``svt evaluate`` of the list and the metrics
and resamples of ten million made-up scores follow.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.machine import write_record
from svtoolkit.data.numbered_ids import NumberedIds
from svtoolkit.data.trials import Trials, read_trials, write_trials
from svtoolkit.scoring.bootstrap import resample_metrics
from svtoolkit.scoring.calibration import cllr, min_cllr_from_ranks
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.embedding_file import read_embeddings, write_embeddings
from svtoolkit.scoring.metrics import RankedScores, act_dcf_from_rates, eer_from_rates, min_dcf_from_rates
from svtoolkit.scoring.score_file import read_scores

TRIALS, UTTERANCES, SPEAKERS = 552_536, 138_137, 1_190
DIMENSION, COHORT, TOP_N = 256, 5_994, 300
LONG, RESAMPLES = 10_000_000, 1_000
CHECKED = 500
"""Trials that are computed again in float64."""

METRICS = (eer_from_rates, partial(min_dcf_from_rates, p_target=0.01), partial(min_dcf_from_rates, p_target=0.05))


def write_material(folder: Path, trials: int, utterances: int, cohort: int) -> None:
    """Embeddings, cohort, trial list and speakers, with names like VoxCeleb's."""
    rng = np.random.default_rng(0)
    speakers = np.sort(rng.integers(SPEAKERS, size=utterances))
    voices = rng.standard_normal((SPEAKERS, DIMENSION), dtype=np.float32)
    names = [f"id{10000 + speaker}/{number:011x}/00001.wav" for number, speaker in enumerate(speakers)]
    vectors = voices[speakers] + 2 * rng.standard_normal((utterances, DIMENSION), dtype=np.float32)
    write_embeddings(folder / "eval", names, vectors)
    members = rng.standard_normal((cohort, DIMENSION), dtype=np.float32)
    write_embeddings(folder / "cohort", [f"id{number:05}" for number in range(cohort)], members)
    enrol = rng.integers(utterances, size=trials)
    near = np.clip(enrol + rng.integers(1, 80, size=trials), 0, utterances - 1)
    test = np.where(np.arange(trials) % 2 == 0, near, rng.integers(utterances, size=trials))
    target = speakers[enrol] == speakers[test]
    write_trials(folder / "trials", Trials([names[row] for row in enrol], [names[row] for row in test], target))
    (folder / "utt2spk").write_text("".join(f"{name} {name[:7]}\n" for name in names))


def by_svt(folder: Path) -> list[list[str]]:
    """The one command that writes both files."""
    svt = [sys.executable, "-m", "svtoolkit.cli"]
    words = [f"trials={folder / 'trials'}", f"embeddings={folder / 'eval.scp'}", f"cohort={folder / 'cohort.scp'}"]
    words += ["normalisation=as-norm", f"cosine_out={folder / 'cosine'}", f"out={folder / 'as_norm'}"]
    return [[*svt, "score", *words]]


def by_trial(folder: Path) -> list[list[str]]:
    """Two programs: cosines, and what normalises them."""
    return [[sys.executable, "-m", "benchmarks.scoring", "--script", script, str(folder)] for script in SCRIPTS]


def score_by_trial(folder: Path) -> None:
    import kaldiio
    from sklearn.metrics.pairwise import cosine_similarity

    vectors = dict(kaldiio.load_scp_sequential(str(folder / "eval.scp")))
    with (folder / "trials").open() as trials, (folder / "cosine_by_trial").open("w") as out:
        for line in trials:
            enrol, test, label = line.split()
            score = cosine_similarity(vectors[enrol].reshape(1, -1), vectors[test].reshape(1, -1))[0][0]
            out.write(f"{enrol} {test} {score:.5f} {label}\n")


def normalise_by_trial(folder: Path) -> None:
    import kaldiio

    lines = [line.split() for line in (folder / "cosine_by_trial").read_text().splitlines()]
    vectors = dict(kaldiio.load_scp_sequential(str(folder / "eval.scp")))
    cohort = np.array([vector for _, vector in kaldiio.load_scp_sequential(str(folder / "cohort.scp"))])
    cohort /= np.linalg.norm(cohort, axis=1, keepdims=True)
    statistics = {}
    for side in (0, 1):
        names = sorted({line[side] for line in lines})
        matrix = np.array([vectors[name] for name in names])
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        top = np.sort(matrix @ cohort.T, axis=1)[:, ::-1][:, :TOP_N]
        statistics[side] = dict(zip(names, zip(top.mean(axis=1), top.std(axis=1), strict=True), strict=True))
    with (folder / "as_norm_by_trial").open("w") as out:
        for enrol, test, score, label in lines:
            (mean_e, std_e), (mean_t, std_t) = statistics[0][enrol], statistics[1][test]
            normalised = 0.5 * ((float(score) - mean_e) / std_e + (float(score) - mean_t) / std_t)
            out.write(f"{enrol} {test} {normalised:.5f} {label}\n")


SCRIPTS = {"score": score_by_trial, "normalise": normalise_by_trial}


class Cost(NamedTuple):
    """Seconds by the clock, and those of the processor: the clock's depend on what else the machine does."""

    wall: float
    processor: float


def run_all(commands: Sequence[Sequence[str]]) -> list[Cost]:
    """What each process costs."""
    costs = []
    for words in commands:
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        costs.append(Cost(round(wall, 2), round(processor, 2)))
    return costs


def product_seconds(utterances: int, cohort: int) -> float:
    """Processor seconds of the product with the cohort alone, on one core: the floor of AS-Norm, at this speed."""
    rng = np.random.default_rng(2)
    members = rng.standard_normal((DIMENSION, cohort), dtype=np.float32)
    rows = rng.standard_normal((1024, DIMENSION), dtype=np.float32)
    with threadpool_limits(1):
        rows @ members
        begin = time.thread_time()
        for _ in range(8):
            rows @ members
        return (time.thread_time() - begin) / 8 / len(rows) * utterances


def largest_error(folder: Path) -> dict[str, float]:
    """Between the files and float64, over some trials."""
    trials = read_trials(folder / "trials")
    rows = np.linspace(0, len(trials) - 1, CHECKED).astype(int)
    table, cohort = read_embeddings(folder / "eval.scp"), read_embeddings(folder / "cohort.scp")
    enrol, test = (_units(table)[table.lookup([side[row] for row in rows])] for side in (trials.enrol, trials.test))
    cosines = (enrol * test).sum(axis=1)
    terms = []
    for side in (enrol, test):
        top = np.sort(side @ _units(cohort).T, axis=1)[:, -min(TOP_N, len(cohort)) :]
        terms.append((cosines - top.mean(axis=1)) / top.std(axis=1))
    expected = {"cosine": cosines, "as_norm": (terms[0] + terms[1]) / 2}
    return {
        name: float(np.abs(read_scores(folder / name)[2][rows] - values).max()) for name, values in expected.items()
    }


def _units(table: EmbeddingTable) -> np.ndarray:
    vectors = table.matrix.astype(np.float64)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def evaluate(folder: Path) -> Cost:
    """Of `svt evaluate` of the cosines, without an interval."""
    words = [f"scores={folder / 'cosine'}", f"trials={folder / 'trials'}"]
    return run_all([[sys.executable, "-m", "svtoolkit.cli", "evaluate", *words]])[0]


def measure_long(trials: int, resamples: int) -> dict[str, Cost]:
    """Costs of the metrics of so many scores in memory, and of resampling their speakers."""
    rng = np.random.default_rng(1)
    enrol, test = rng.integers(SPEAKERS, size=(2, trials))
    test = np.where(rng.random(trials) < 0.1, enrol, test)
    target = enrol == test
    scores = np.round(rng.normal(size=trials) + 4 * target, 6)
    begin = time.perf_counter(), time.process_time()
    ranked = RankedScores.rank(scores, target)
    rates = ranked.error_rates()
    found = [*(metric(rates)[0] for metric in METRICS), act_dcf_from_rates(rates), cllr(scores, target)]
    found.append(min_cllr_from_ranks(ranked))
    costs = {"metrics": _since(*begin)}
    assert np.isfinite(found).all()
    begin = time.perf_counter(), time.process_time()
    names = [f"id{10000 + speaker}" for speaker in range(SPEAKERS)]
    sides = NumberedIds(names, enrol), NumberedIds(names, test)  # as of a list and its utt2spk
    resample_metrics([scores], *sides, target, METRICS, resamples=resamples, seed=0)
    return costs | {"resamples": _since(*begin)}


def _since(wall: float, processor: float) -> Cost:
    return Cost(round(time.perf_counter() - wall, 2), round(time.process_time() - processor, 2))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--script", choices=SCRIPTS, help="one of the programs of a trial at a time")
    parser.add_argument("folder", type=Path, nargs="?", help="of the script")
    parser.add_argument("--scale", type=float, default=1.0, help="share of all sizes")
    parser.add_argument("--rounds", type=int, default=3, help="of svt score and evaluate; a trial at a time goes once")
    parser.add_argument("--no-by-trial", dest="by_trial", action="store_false", help="leave out what takes minutes")
    options = parser.parse_args(arguments)
    if options.script:
        SCRIPTS[options.script](options.folder)
        return 0
    sizes = [max(20, int(size * options.scale)) for size in (TRIALS, UTTERANCES, COHORT)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_material(folder, *sizes)
        rounds = []
        for _ in range(options.rounds):
            rounds.append((run_all(by_svt(folder))[0], evaluate(folder)))
            print(f"svt score {rounds[-1][0]}, svt evaluate {rounds[-1][1]}", flush=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        product = [product_seconds(*sizes[1:]) for _ in range(3)]
        score, judge = (Cost(*map(min, zip(*column, strict=True))) for column in zip(*rounds, strict=True))
        peer = run_all(by_trial(folder)) if options.by_trial else []
        found: dict[str, Any] = {
            "trials": sizes[0], "utterances": sizes[1], "cohort": sizes[2], "top_n": TOP_N,
            "svt_score_seconds": [each[0]._asdict() for each in rounds],
            "svt_evaluate_seconds": [each[1]._asdict() for each in rounds],
            "product_processor_seconds": [float(f"{each:.3g}") for each in product],
            "svt_peak_gib": round(peak / 2**30, 2),
            "largest_error": largest_error(folder),
        }  # fmt: skip
        if peer:
            found["by_trial_seconds"] = {
                name: cost._asdict() for name, cost in zip(("cosine", "as_norm"), peer, strict=True)
            }
            found["times_faster"] = round(sum(cost.wall for cost in peer) / score.wall, 1)
            found["times_less_processor"] = round(sum(cost.processor for cost in peer) / score.processor, 1)
    long = measure_long(max(1000, int(LONG * options.scale)), max(2, int(RESAMPLES * min(1, options.scale))))
    found["ten_million_seconds"] = {name: cost._asdict() for name, cost in long.items()}
    print(f"svt score {score}, a trial at a time {peer}: {found.get('times_faster')} times faster")
    print(f"svt evaluate {judge}; largest error {found['largest_error']}; ten million: {long}")
    if options.output:
        words = sys.argv[1:] if arguments is None else arguments
        write_record(options.output, "scoring", words, ["numpy", "scikit-learn"], scale=options.scale, **found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
