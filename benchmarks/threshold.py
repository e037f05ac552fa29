"""How far realised false-alarm rates lie from those that `svt calibrate` promises from recordings of 20 people.

    python -m benchmarks.threshold --output benchmarks/results/threshold.json
    python -m benchmarks.threshold --output benchmarks/results/threshold.json \\
        --model recipes/mini/exp/synthetic/model --data DATA

Speakers are drawn again and again; each time the threshold of their recordings is laid, and the share of the pairs of
other speakers that reach it is counted, each pair of speakers once, however many recordings it has. The others are of
the same distribution (generated embeddings), or all speakers of the corpus who were not drawn, or those of another
corpus. DATA is a folder with speechocean762 and librispeech_mini as data directories, which MODEL embeds; without both
options the generated rows alone are measured. The table of docs/threshold.md is what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.scoring.own_threshold import choose_threshold
from svtoolkit.scoring.speaker_model import SpeakerModel

SPEAKERS, DRAWS, RESAMPLES = 20, 60, 100
RATES = (0.01, 0.001)
POPULATION = 1500
"""Generated speakers of one recording, whose pairs are counted: 1.1 million."""

RECORDED, OTHERS = "speechocean762/eval", "librispeech_mini/train"
MOST = 10
"""Recordings of a speaker."""


@dataclass(frozen=True)
class Voices:
    """Embeddings of length one, (recordings, dimension), and the speaker of each."""

    vectors: np.ndarray
    speakers: np.ndarray

    def of(self, chosen: np.ndarray) -> Voices:
        return Voices(self.vectors[chosen], self.speakers[chosen])


@dataclass(frozen=True)
class Spread:
    """How realised rates lie to a promised one: quantiles of their ratio over the draws, and shares of the draws."""

    promised: float
    median: float
    low: float
    high: float
    within_two: float
    within_bounds: float


@dataclass(frozen=True)
class Row:
    """A line of the table: where the speakers are drawn from, and whose pairs are counted."""

    drawn_from: str
    measured_on: str
    spreads: list[Spread]


class Generated:
    """Normal embeddings: speakers around a mean, recordings around speakers, the first dimensions the widest."""

    def __init__(self, dimension: int, *, two_sexes: bool) -> None:
        world = np.random.default_rng(99)
        self.scale = np.arange(1, dimension + 1) ** -0.4
        self.scale /= np.linalg.norm(self.scale)
        self.sex, self.common = (0.4 * each / np.linalg.norm(each) for each in world.standard_normal((2, dimension)))
        self.two_sexes = two_sexes

    def draw(self, rng: np.random.Generator, speakers: int, recordings: np.ndarray) -> Voices:
        """As many recordings of each speaker as ``recordings`` says, (speakers,)."""
        voices = rng.standard_normal((speakers, len(self.scale))) * self.scale
        if self.two_sexes:
            voices += rng.choice([-1, 1], (speakers, 1)) * self.sex + self.common
        names = np.repeat(np.arange(speakers), recordings)
        vectors = voices[names] + 0.7 * rng.standard_normal((len(names), len(self.scale))) * self.scale
        return Voices(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), names)


def rate_on(others: Voices) -> Callable[[float], float]:
    """Threshold -> share of the pairs of different speakers that reach it, each pair of speakers weighing the same."""
    _, numbers = np.unique(others.speakers, return_inverse=True)
    one, other = np.triu_indices(len(numbers), 1)
    different = numbers[one] != numbers[other]
    one, other = one[different], other[different]
    cosines = (others.vectors @ others.vectors.T)[one, other]
    recordings = np.bincount(numbers)
    weights = 1.0 / (recordings[numbers[one]] * recordings[numbers[other]])
    order = np.argsort(cosines)
    cosines, below = cosines[order], np.append(0.0, np.cumsum(weights[order]))
    return lambda threshold: float(1 - below[np.searchsorted(cosines, threshold)] / below[-1])


Draw = Callable[[np.random.Generator], tuple[Voices, Callable[[float], float]]]
"""Some speakers, and what counts the rate on the others."""


def draw_generated(
    kind: Generated, count: Callable[[float], float], rng: np.random.Generator
) -> tuple[Voices, Callable[[float], float]]:
    """Three to eight recordings of each speaker."""
    return kind.draw(rng, SPEAKERS, rng.integers(3, 9, SPEAKERS)), count


def draw_recorded(
    pool: Voices, others: Voices | None, most: tuple[int, int], rng: np.random.Generator
) -> tuple[Voices, Callable[[float], float]]:
    """Between so many recordings of each speaker; the others: those of ``others``, or of the pool who are not drawn."""
    chosen = rng.choice(np.unique(pool.speakers), SPEAKERS, replace=False)
    rows = [
        rng.permutation(np.flatnonzero(pool.speakers == name))[: rng.integers(most[0], most[1] + 1)] for name in chosen
    ]
    rest = pool.of(~np.isin(pool.speakers, chosen)) if others is None else others
    return pool.of(np.concatenate(rows)), rate_on(rest)


def measure(draw: Draw, draws: int) -> list[Spread]:
    """Both rates, on the same draws."""
    rng = np.random.default_rng(2)
    realised: dict[float, list[float]] = {rate: [] for rate in RATES}
    held: dict[float, list[bool]] = {rate: [] for rate in RATES}
    for _ in range(draws):
        voices, count = draw(rng)
        for rate in RATES:
            chosen = choose_threshold(voices.vectors, list(voices.speakers), rate, resamples=RESAMPLES)
            found = count(chosen.threshold)
            realised[rate].append(found / rate)
            held[rate].append(chosen.fa_low <= found <= chosen.fa_high)
    return [spread_of(rate, np.array(realised[rate]), held[rate]) for rate in RATES]


def spread_of(promised: float, ratios: np.ndarray, held: Sequence[bool]) -> Spread:
    low, median, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    within = np.mean((ratios >= 0.5) & (ratios <= 2))
    return Spread(promised, *(round(float(each), 3) for each in (median, low, high, within, np.mean(held))))


def generated_rows(draws: int) -> list[Row]:
    rows = []
    for two_sexes, name in ((False, "normal embeddings"), (True, "the same with two sexes and a common mean")):
        for dimension in (64, 200):
            kind = Generated(dimension, two_sexes=two_sexes)
            others = kind.draw(np.random.default_rng(1), POPULATION, np.ones(POPULATION, dtype=int))
            spreads = measure(partial(draw_generated, kind, rate_on(others)), draws)
            rows.append(Row(f"{name}, {dimension} dimensions", "others of them", spreads))
    return rows


def recorded_rows(model: Path, data: Path, draws: int) -> list[Row]:
    pool, others = (embed(model, data, name) for name in (RECORDED, OTHERS))
    corpora = {
        "the same corpus": None,
        f"librispeech_mini, {len(np.unique(others.speakers))} speakers": others,
    }
    rows = []
    for most, name in (((MOST, MOST), f"{MOST} recordings"), ((1, 8), "1 to 8 recordings")):
        for measured_on, test in corpora.items():
            spreads = measure(partial(draw_recorded, pool, test, most), draws)
            rows.append(Row(f"speechocean762, {name} a speaker", measured_on, spreads))
    return rows


def embed(model: Path, data: Path, name: str) -> Voices:
    """The first recordings of every speaker of a data directory."""
    kaldi_dir = KaldiDir.read(data / name, data)
    chosen = [kaldi_dir.utterance(each) for found in kaldi_dir.spk2utt.values() for each in found[:MOST]]
    extraction = SpeakerModel.load(model, device="cpu").extractor.extract(chosen)
    matrix = np.array(list(extraction.embeddings), dtype=np.float64)
    speakers = np.array([kaldi_dir.utt2spk[each] for each in extraction.utterances])
    return Voices(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), speakers)


def format_table(rows: Sequence[Row]) -> str:
    lines = [
        "| drawn from | counted on | 1 %: median of realised / promised | 5 to 95 % of draws | within a factor of 2 | "
        "in the bounds | 0.1 %: median | 5 to 95 % | within a factor of 2 | in the bounds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{each.median:.2f} | {each.low:.2f} to {each.high:.2f} | {100 * each.within_two:.0f} % | "
            f"{100 * each.within_bounds:.0f} %"
            for each in row.spreads
        ]
        lines.append(f"| {row.drawn_from} | {row.measured_on} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of 20 speakers, for each row")
    parser.add_argument("--model", type=Path, help="released model, by `svt average`")
    parser.add_argument("--data", type=Path, help="folder of speechocean762 and librispeech_mini")
    options = parser.parse_args(words)
    if (options.model is None) != (options.data is None):
        parser.error("--model embeds the recordings of --data: give both or none")
    rows = generated_rows(options.draws)
    if options.model is not None:
        rows += recorded_rows(options.model, options.data, options.draws)
    print(format_table(rows))
    write_record(
        options.output,
        "threshold",
        words,
        ["numpy", "scipy", "torch"],
        load_average=load_average(),
        speakers=SPEAKERS,
        draws=options.draws,
        resamples=RESAMPLES,
        results=[asdict(row) for row in rows],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
