"""What fusion with statistics of MFCCs and with quality measures gains on the folds of a cross-validation.

    svt crossval experiment=mini data.train=data/all exp_dir=exp/cv
    python -m benchmarks.fusion --exp exp/cv --output benchmarks/results/fusion.json

Of each fold whose network is trained, half of the training speakers are the cohort, of AS-Norm, of the whitening of
the statistics and of the quality measures. A fusion is trained in two ways: with trials of the other half, whom the
network has heard, and with trials of the held-out speakers of the other folds, whose networks have not heard them. Its
scores of the held-out speakers of all folds are pooled, and compared with AS-Norm alone by pairs over speakers.
"Calibrated" is AS-Norm through the fusion of one score, since scores of several networks are pooled. ``--base`` has any
other system of ``svt crossval`` in its place, the back end of which is trained on the cohort; ``--training`` takes the
networks of another seed, or the ensembles.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import write_record
from benchmarks.mfcc_baseline import statistics_of
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import Trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.backends.training import train_backend
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.calibration import cllr, min_cllr
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores, mean_embedding, speaker_means
from svtoolkit.scoring.embedding_file import read_embeddings
from svtoolkit.scoring.fusion import Features, check_unheard, fit_fusion, trial_features
from svtoolkit.scoring.metrics import eer_from_rates, equal_error_rate
from svtoolkit.scoring.normalisation import normalise_scores
from svtoolkit.scoring.paired import compare_systems
from svtoolkit.scoring.quality.measured import Measured, measure_quality
from svtoolkit.scoring.systems import AS_NORM, System, systems_of

TOP_N = 40  # closest training speakers of AS-Norm, as in the mini recipe
MEASURES = ["log_duration", "magnitude", "cohort_mean"]
HEARD, OTHER_FOLDS = "heard speakers", "other folds"

SYSTEMS = {
    "calibrated": ("network",),
    "with quality": ("network", "quality"),
    "with statistics": ("network", "statistics"),
    "with statistics and quality": ("network", "statistics", "quality"),
}


@dataclass(frozen=True)
class Scored:
    """Trials, their speakers on both sides, and all that is known of them."""

    trials: Trials
    sides: tuple[Sequence[str], Sequence[str]]
    features: Features

    @property
    def speakers(self) -> set[str]:
        return {name for side in self.sides for name in side}

    def only(self, kinds: Sequence[str]) -> Features:
        """The features of a system of ``SYSTEMS``."""
        scores = {"score 1": "network", "score 2": "statistics"}
        kept = [row for row, name in enumerate(self.features.names) if scores.get(name, "quality") in kinds]
        return Features([self.features.names[row] for row in kept], self.features.matrix[:, kept])


@dataclass(frozen=True)
class Row:
    """A system on the pooled trials; ``gain``: EER of the base, calibrated alike, less this one, and its interval."""

    trained_with: str
    system: str
    eer: float
    cllr: float
    min_cllr: float
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None


def score_fold(
    fold: Path, training: str, root: Path | None, statistics: EmbeddingTable, measures: Sequence[str], base: System
) -> tuple[Scored, Scored]:
    """The trials of the held-out speakers, and those of half of the training speakers."""
    train, held = (KaldiDir.read(fold / name, root) for name in ("train", "eval"))
    speakers = sorted(train.spk2utt)
    random.Random(0).shuffle(speakers)
    fused = set(speakers[: len(speakers) // 2])
    cohort = {name: speaker for name, speaker in train.utt2spk.items() if speaker not in fused}
    lists = (
        (held, "eval", read_trials(fold / "eval" / "trials")),
        (train, "train", make_trials({name: train.spk2utt[name] for name in fused}, seed=0)),
    )
    network = {name: read_embeddings(fold / training / "embeddings" / f"{name}.scp") for name in ("train", "eval")}
    members = EmbeddingTable(list(cohort), network["train"].matrix[network["train"].lookup(list(cohort))])
    net_cohort = speaker_means(members, cohort)
    whitening = train_backend("wccn", statistics, cohort, {"whiten": True})
    white = whitening.apply(statistics)
    white_cohort = speaker_means(white, cohort)

    backend = None if base.backend is None else train_backend(base.backend, network["train"], cohort)
    comparison = None if backend is None else backend.comparison
    mean = mean_embedding(members) if backend is None and base.normalisation == AS_NORM else None
    base_cohort = net_cohort if backend is None else speaker_means(backend.apply(members), cohort)

    def base_scores(table: EmbeddingTable, trials: Trials) -> np.ndarray:
        table = table if backend is None else backend.apply(table)
        scores = comparison.scores(table, trials) if comparison else cosine_scores(table, trials, mean=mean)
        if base.normalisation != AS_NORM:
            return scores
        return normalise_scores(scores, trials, table, base_cohort, top_n=TOP_N, mean=mean, comparison=comparison)

    def score(data: KaldiDir, name: str, trials: Trials) -> Scored:
        columns = [
            base_scores(network[name], trials),
            normalise_scores(cosine_scores(white, trials), trials, white, white_cohort, top_n=TOP_N),
        ]
        measured = Measured(data.utterances(), network[name], net_cohort, TOP_N)
        features = trial_features(columns, trials, measure_quality(measured, measures))
        return Scored(trials, trial_speakers(trials, data.utt2spk), features)

    first, second = (score(*each) for each in lists)
    return first, second


def statistics_of_folds(folds: Sequence[Path], root: Path | None, workers: int) -> EmbeddingTable:
    """Of all utterances, which most folds share."""
    found: dict[str, np.ndarray] = {}
    for folder in [fold / name for fold in folds for name in ("train", "eval")]:
        data = KaldiDir.read(folder, root)
        if missing := [name for name in data.utt2spk if name not in found]:
            table = statistics_of(data.subset(missing), workers)
            found |= zip(table.utterances, table.matrix, strict=True)
    return EmbeddingTable(list(found), np.stack(list(found.values())))


def pool(held: Sequence[Scored], trainers: Sequence[Sequence[Scored]], kinds: Sequence[str]) -> np.ndarray:
    """Log-likelihood ratios of the trials of all folds, each by the fusion of its trainers."""
    ratios = []
    for scored, others in zip(held, trainers, strict=True):
        parts = [other.only(kinds) for other in others]
        check_unheard({name for other in others for name in other.speakers}, scored.speakers)
        together = Features(parts[0].names, np.concatenate([part.matrix for part in parts]))
        fusion = fit_fusion(together, np.concatenate([other.trials.target for other in others]))
        ratios.append(fusion.llr(scored.only(kinds)))
    return np.concatenate(ratios)


def compare(pairs: Sequence[tuple[Scored, Scored]], resamples: int) -> list[Row]:
    """Rows of both ways to train; with one fold the second is not there."""
    held = [first for first, _ in pairs]
    target = np.concatenate([each.trials.target for each in held])
    sides = [np.concatenate([np.array(each.sides[side]) for each in held]).tolist() for side in (0, 1)]
    ways = {HEARD: [[second] for _, second in pairs]}
    if len(pairs) > 1:
        ways[OTHER_FOLDS] = [[other for other in held if other is not each] for each in held]
    rows = []
    for way, trainers in ways.items():
        ratios = {name: pool(held, trainers, kinds) for name, kinds in SYSTEMS.items()}
        [found] = compare_systems(list(ratios.values()), *sides, target, [eer_from_rates], resamples=resamples)
        for place, (name, llr) in enumerate(ratios.items()):
            gain = None if place == 0 else found[place - 1]  # pairs with the first one stand first
            rows.append(
                Row(
                    way,
                    name,
                    equal_error_rate(llr, target)[0],
                    cllr(llr, target),
                    min_cllr(llr, target),
                    None if gain is None else gain.difference,
                    None if gain is None else (gain.interval.low, gain.interval.high),
                )
            )
    return rows


def format_table(rows: Sequence[Row], base: str) -> str:
    lines = [
        f"| trained with | {base}, | EER % | gain, points (95 %, Holm) | Cllr | minCllr |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        gain = ""
        if row.gain is not None and row.gain_interval is not None:
            low, high = row.gain_interval
            gain = f"{100 * row.gain:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
        costs = f"{row.cllr:.3f} | {row.min_cllr:.3f}"
        lines.append(f"| {row.trained_with} | {row.system} | {100 * row.eer:.2f} | {gain} | {costs} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fusion on the folds of a cross-validation.")
    parser.add_argument("--exp", type=Path, required=True, help="exp_dir of svt crossval")
    parser.add_argument("--training", default="seed42", help="folder of each fold: seed42, or ensemble-42-43")
    parser.add_argument("--base", default=AS_NORM, help="system of svt crossval that scores the network's embeddings")
    parser.add_argument("--root", type=Path, help="folder that relative paths of wav.scp are taken from")
    parser.add_argument("--measures", nargs="+", default=MEASURES, help="quality measures")
    parser.add_argument("--workers", type=int, default=1, help="threads that read audio")
    parser.add_argument("--resamples", type=int, default=1000, help="draws of speakers for the intervals")
    parser.add_argument("--output", type=Path, help="JSON file to write besides the printed table")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    folds = sorted(path.parents[2] for path in options.exp.glob(f"fold*/{options.training}/embeddings/eval.scp"))
    if not folds:
        print(f"error: {options.exp}: no fold has embeddings of {options.training}", file=sys.stderr)
        return 1
    try:
        base = systems_of([options.base], key="--base")[options.base]
        statistics = statistics_of_folds(folds, options.root, options.workers)
        pairs = [score_fold(fold, options.training, options.root, statistics, options.measures, base) for fold in folds]
        rows = compare(pairs, options.resamples)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    counts = {
        "folds": [fold.name for fold in folds],
        "trials": sum(len(held.trials) for held, _ in pairs),
        "speakers": len(set().union(*(held.speakers for held, _ in pairs))),
    }
    print(format_table(rows, options.base))
    print(", ".join(f"{name}: {value}" for name, value in counts.items()))
    if options.output:
        write_record(
            options.output,
            "fusion",
            given,
            ["numpy", "torch"],
            base=options.base,
            **counts,
            results=[asdict(row) for row in rows],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
