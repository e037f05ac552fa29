"""What systems learn, side by side over seeds: equal error rates of finished runs of the mini recipe.

    python -m benchmarks.learning --exp EXP --systems resnet10_sgd,revnet_tiny_sgd --seeds 1,2,3 \\
        --output benchmarks/results/learning.json --run --data DIR --data DIR -- data.root=DIR trainer.epochs=16

EXP/<system>_<seed> is the folder of one run. With --run the recipe is started for those that have no report yet, one
after the other; interrupted, the same command resumes. What stands after -- goes to every run. Systems differ in
nothing but the overrides of ``SYSTEMS`` (runs that do are refused), and equal seeds mean equal order of the data, so
that differences are taken seed by seed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import write_record
from svtoolkit.errors import UserError
from svtoolkit.reporting.history import series
from svtoolkit.runs.run_history import read_history

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "mini" / "run.sh"

SYSTEMS: dict[str, list[str]] = {
    "resnet10_sgd": [],
    "resnet10_sgd_8bit": ["optim=sgd_8bit"],
    "revnet_tiny_sgd": ["model=revnet_tiny", "memory=reversible"],
    "revnet_tiny_sgd_8bit": ["model=revnet_tiny", "memory=reversible", "optim=sgd_8bit"],
}
"""Name -> overrides of the mini recipe."""

Runs = Mapping[tuple[str, int], Mapping[str, Any]]
"""System and seed -> what ``read_run`` found."""


def recipe_command(folder: Path, system: str, seed: int, data: Sequence[Path], extra: Sequence[str]) -> list[str]:
    """The command of one run."""
    sets = [word for directory in data for word in ("--data", str(directory))]
    return ["bash", str(RECIPE), "--exp-dir", str(folder), *sets, *SYSTEMS[system], f"seed={seed}", *extra]


def run_missing(folders: Mapping[tuple[str, int], Path], data: Sequence[Path], extra: Sequence[str]) -> None:
    """Start the recipe for each folder without a report.

    Raises:
        UserError: a run ended with an error.
    """
    for (system, seed), folder in folders.items():
        if result_file(folder).is_file():
            continue
        command = recipe_command(folder, system, seed, data, extra)
        print(shlex.join(command), file=sys.stderr, flush=True)
        status = subprocess.call(command)
        if status != 0:
            raise UserError(
                f"{folder}: the recipe ended with exit code {status}; see what it printed, and repeat the command to "
                "go on from there"
            )


def result_file(folder: Path) -> Path:
    return folder / "report" / "result.json"


def read_run(folder: Path, seed: int) -> dict[str, Any]:
    """EER of every evaluation and normalisation of a finished run, last training loss, and what made it.

    Raises:
        UserError: there is no report, it is malformed, or it is of another seed.
    """
    path = result_file(folder)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; finish the run, or let --run do it")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        facts = content["facts"]
        scores = {
            (row["evaluation"].removeprefix("eval_"), row["scores"]): {
                "eer": float(row["eer"]),
                "trials": row["trials"],
                "trials_sha256": row["trials_sha256"],
            }
            for row in content["results"]
        }
        found = facts["seed"]
        training = [command for command in facts["commands"] if command.startswith("svt train ")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: is not the report of a run of the mini recipe ({type(error).__name__}: {error}); repeat its "
            "last stage"
        ) from error
    if found != seed:
        raise UserError(f"{path}: is of seed {found}, expected {seed} as in the folder's name")
    _, losses = series(read_history(folder / "logs" / "history.jsonl"), "epoch", "epoch", "loss")
    if not len(losses):
        raise UserError(f"{folder / 'logs' / 'history.jsonl'}: holds no epoch with a loss; expected one or more")
    return {
        "scores": scores,
        "epochs": len(losses),
        "last_training_loss": float(losses[-1]),
        "parameters": facts.get("parameters"),
        "git_commit": facts.get("git commit"),
        "training": _choices(training[-1]) if training else [],
    }


def _choices(command: str) -> list[str]:
    """What a training command chose, its paths left out."""
    return [word for word in shlex.split(command)[2:] if "=" in word and "/" not in word]


def compare(runs: Runs, systems: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each evaluation, normalisation and system; differences are to the first system, seed by seed.

    Raises:
        UserError: runs that were not evaluated on the same trials, or that differ in more than system and seed.
    """
    _check_training(runs)
    first = runs[systems[0], seeds[0]]["scores"]
    rows = []
    for key, reference in first.items():
        for system in systems:
            for seed in seeds:
                _check_trials(f"{system}_{seed}", key, runs[system, seed]["scores"].get(key), reference)
            eers = _eers(runs, system, seeds, key)
            base = _eers(runs, systems[0], seeds, key)
            differences = [eer - other for eer, other in zip(eers, base, strict=True)]
            row = {"evaluation": key[0], "scores": key[1], "trials": reference["trials"], "system": system}
            row |= {"eer": dict(zip(map(str, seeds), eers, strict=True)), **_mean_and_deviation(eers, "eer")}
            if system != systems[0]:
                row |= {"difference_to": systems[0], "differences": differences}
                row |= _mean_and_deviation(differences, "difference")
            rows.append(row)
    return rows


def _check_trials(run: str, key: tuple[str, str], found: Mapping[str, Any] | None, expected: Mapping[str, Any]) -> None:
    if found is None or found["trials_sha256"] != expected["trials_sha256"]:
        what = "no scores" if found is None else "scores of other trials"
        raise UserError(
            f"{run}: has {what} for {key[0]}, {key[1]}; expected the trials of the first run; evaluate both with the "
            "same --data"
        )


def _check_training(runs: Runs) -> None:
    """Of two runs that differ in anything else, nobody could say what the difference comes from.

    The memory strategy may differ: it does not change the numbers, under autocast not even their last bit.
    """
    common = {
        f"{system}_{seed}": sorted(
            word for word in set(run["training"]) - {f"seed={seed}", *SYSTEMS[system]} if not word.startswith("memory=")
        )
        for (system, seed), run in runs.items()
    }
    (first, expected), *others = common.items()
    for name, found in others:
        if found != expected:
            raise UserError(
                f"{name}: was trained with {' '.join(found) or 'nothing else'}, {first} with "
                f"{' '.join(expected) or 'nothing else'}; compare runs that differ in system and seed alone"
            )


def _eers(runs: Runs, system: str, seeds: Sequence[int], key: tuple[str, str]) -> list[float]:
    return [runs[system, seed]["scores"][key]["eer"] for seed in seeds]


def _mean_and_deviation(values: Sequence[float], name: str) -> dict[str, float | None]:
    """Mean and standard deviation (of a sample: n - 1), the latter None of a single value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {f"{name}_mean": statistics.mean(values), f"{name}_std": deviation}


def losses(runs: Runs, systems: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Last training loss of every system: mean of the last epoch, margin included."""
    rows = []
    for system in systems:
        values = [runs[system, seed]["last_training_loss"] for seed in seeds]
        row = {"system": system, "last_training_loss": dict(zip(map(str, seeds), values, strict=True))}
        rows.append(row | _mean_and_deviation(values, "loss"))
    return rows


def format_table(rows: Sequence[Mapping[str, Any]], of_losses: Sequence[Mapping[str, Any]]) -> str:
    seeds = list(rows[0]["eer"])
    loss = {row["system"]: row["loss_mean"] for row in of_losses}
    head = ["evaluation", "scores", "system", *(f"seed {seed}" for seed in seeds), "mean ± std"]
    head += ["difference, mean ± std", "last training loss"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row["evaluation"], row["scores"], row["system"], *(f"{100 * row['eer'][seed]:.2f}" for seed in seeds)]
        cells.append(_spread(row["eer_mean"], row["eer_std"]))
        with_difference = "difference_mean" in row
        cells.append(_spread(row["difference_mean"], row["difference_std"], "+") if with_difference else "–")
        cells.append(f"{loss[row['system']]:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "EER in percent; std: of a sample; differences: seed by seed to the first system."]
    return "\n".join(lines)


def _spread(mean: float, deviation: float | None, sign: str = "") -> str:
    shown = f"{100 * mean:{sign}.2f}"
    return shown if deviation is None else f"{shown} ± {100 * deviation:.2f}"


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exp", type=Path, required=True, help="folder that holds <system>_<seed>/")
    parser.add_argument("--systems", default="resnet10_sgd,revnet_tiny_sgd,resnet10_sgd_8bit", help="the first: base")
    parser.add_argument("--seeds", default="1,2,3", help="whole numbers with commas between them")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--run", action="store_true", help="train what has no report yet")
    parser.add_argument("--data", type=Path, action="append", default=[], help="with --run: corpus, as of the recipe")
    parser.add_argument("extra", nargs="*", help="with --run, after --: options and overrides of the recipe")
    return parser.parse_args(words)


def collect(options: argparse.Namespace) -> tuple[Runs, list[str], list[int]]:
    """Check what is asked for, run what is missing where that is asked for, and read all runs.

    Raises:
        UserError: an unknown system, a seed that is no number, options that only --run takes, and as ``read_run``.
    """
    systems = options.systems.split(",")
    for system in systems:
        if system not in SYSTEMS:
            raise UserError(f"--systems: there is no system {system!r}; expected some of {', '.join(SYSTEMS)}")
    words = options.seeds.split(",")
    for word in words:
        if not word.isdecimal():
            raise UserError(f"--seeds: found {word!r}, expected whole numbers with commas between them")
    if (options.data or options.extra) and not options.run:
        raise UserError("--data and what stands after -- concern the training of runs; add --run, or leave them out")
    folders = {(system, int(seed)): options.exp / f"{system}_{int(seed)}" for system in systems for seed in words}
    if options.run:
        run_missing(folders, options.data, options.extra)
    return {key: read_run(folder, key[1]) for key, folder in folders.items()}, systems, [int(word) for word in words]


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        runs, systems, seeds = collect(parse(words))
        rows = compare(runs, systems, seeds)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    of_losses = losses(runs, systems, seeds)
    print(format_table(rows, of_losses))
    write_record(
        parse(words).output,
        "learning",
        words,
        ["torch", "numpy"],
        runs={
            f"{system}_{seed}": {key: value for key, value in run.items() if key != "scores"}
            for (system, seed), run in runs.items()
        },
        losses=of_losses,
        results=rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
