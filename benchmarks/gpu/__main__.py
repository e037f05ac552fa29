"""What only a GPU can say, part by part: each in a process and a JSON file of its own, and no longer than it may.

    python -m benchmarks.gpu                      all parts
    python -m benchmarks.gpu 2                    those of the second run: all three take eight minutes each
    python -m benchmarks.gpu memory equality      some, by name
    python -m benchmarks.gpu --summary            decisions that the files allow, without a GPU

A part that was stopped, by its time or otherwise, is continued by the next call; one that fails does not stop the
others, and the exit code at the end says so. `--device cpu --tiny` tries all code that needs no CUDA.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.parts import PARTS, Part

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "results" / "gpu"
GRACE_SECONDS = 45
"""For a process to start, and for the measurement that is on its way when the time is over."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    lines = [f"  {name:11} run {part.run}, {part.seconds:3} s: {part.question}" for name, part in PARTS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        epilog="parts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="names, or numbers of runs; default: all")
    parser.add_argument("--skip", default="", help="parts to leave out, with spaces or commas between them")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the JSON files")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="the smallest of everything, to try the code")
    parser.add_argument("--seconds", type=float, help="of each part, in the place of its own")
    parser.add_argument("--here", action="store_true", help="measure in this process")
    parser.add_argument("--summary", action="store_true", help="print the decisions that the files allow")
    parser.add_argument("--predict", action="store_true", help="on any machine: what the ledger says of the same steps")
    return parser.parse_args(words)


def chosen(words: Sequence[str], skip: str) -> list[str]:
    """Names of parts in the order of ``PARTS``.

    Raises:
        ValueError: a word that is no part and no run.
    """
    left_out = skip.replace(",", " ").split()
    for word in [*words, *left_out]:
        if word not in PARTS and word not in {str(part.run) for part in PARTS.values()}:
            raise ValueError(f"there is no part {word!r}; expected some of {', '.join(PARTS)}, or a run: 1, 2, 3")

    def is_meant(name: str, part: Part, by: Sequence[str]) -> bool:
        return name in by or str(part.run) in by

    return [
        name
        for name, part in PARTS.items()
        if (not words or is_meant(name, part, words)) and not is_meant(name, part, left_out)
    ]


def measure_here(name: str, options: argparse.Namespace) -> bool:
    """Measure a part in this process; False where something of it failed."""
    import torch

    from benchmarks.gpu import records
    from benchmarks.gpu.parts import Settings
    from svtoolkit.device import choose_device
    from svtoolkit.errors import UserError

    if options.device == "cpu" and PARTS[name].needs_cuda:
        print(f"{name}: left out, it needs CUDA", flush=True)
        return True
    try:
        device = choose_device(options.device)
    except UserError as error:
        print(f"{name}: {error}", flush=True)
        return False
    if device.type == "cuda":  # the cap on the allocator wants a number
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # as the trainer has it
    part = importlib.import_module(f"benchmarks.gpu.{name}")
    seconds = PARTS[name].seconds if options.seconds is None else options.seconds
    document = records.measure(
        part.items(Settings(device, options.tiny)),
        options.folder / f"{name}.json",
        device,
        seconds,
        lambda line: print(f"{name}: {line}", flush=True),
    )
    if document["left"]:
        print(f"{name}: {seconds:g} s are over, {len(document['left'])} left to the next call", flush=True)
    return not any(records.ERROR in record for record in document["records"].values())


def measure_apart(name: str, words: Sequence[str], seconds: float | None) -> bool:
    """The same in a process of its own, which a broken CUDA context or a hang takes along alone."""
    limit = (PARTS[name].seconds if seconds is None else seconds) + GRACE_SECONDS
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--here", *words]
    try:
        return subprocess.run(command, cwd=ROOT, timeout=limit, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{name}: stopped after {limit:g} s; what it had found is in its file", flush=True)
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(words)
    try:
        names = chosen(options.parts, options.skip)
    except ValueError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    if options.predict:
        from benchmarks.gpu import predictions

        predictions.predict_all(predictions.FILE, predictions.subjects())
        return 0
    if options.summary:
        from benchmarks.gpu.summary import format_summary

        print(format_summary(options.folder))
        return 0
    if options.here:
        ended_well = [measure_here(name, options) for name in names]
        return 0 if all(ended_well) else 1
    passed_on = ["--folder", str(options.folder.resolve()), "--device", options.device]
    passed_on += ["--tiny"] * options.tiny + ([] if options.seconds is None else ["--seconds", str(options.seconds)])
    failed = [name for name in names if not measure_apart(name, passed_on, options.seconds)]
    print(f"failed: {', '.join(failed)}; see the JSON files" if failed else "all parts ended well", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
