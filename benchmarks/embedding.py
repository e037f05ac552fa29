"""Memory and time of `svt embed`: batches by the budget, by batch_seconds alone, and one by one.

    python -m benchmarks.embedding --output benchmarks/results/embedding.json

Each row is a process of its own that embeds recordings of noise, equally long, by a network of random weights: the
highest resident size of the process, what it was before the first pass included, the memory that the tensors of its
largest batch are predicted to take, and seconds of audio a second of extraction. Nothing is padded, so that no time
goes into padding.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import yaml

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.planning.stored_predictions import predict_or_recall_pass

RATE = 16000
ROWS: dict[str, list[str]] = {
    "budget of 0.5 GiB": ["memory_gib=0.5"],
    "batch_seconds=120": [],
    "batch_size=1": ["batch_size=1"],
}


def write_material(folder: Path, network: str, count: int, seconds: float) -> ModelDescription:
    """``folder``/model and the data directory ``folder``/data."""
    description = ModelDescription({"name": network, "num_bins": 80, "embedding_dim": 256}, features_config({}))
    write_released(folder / "model", build_model(**description.model).state_dict(), description)
    names = [f"n{number:03}" for number in range(count)]
    for number, name in enumerate(names):
        noise = np.random.default_rng(number).normal(0, 0.1, round(seconds * RATE))
        soundfile.write(folder / f"{name}.wav", noise, RATE, subtype="PCM_16")
    KaldiDir(
        {name: str(folder / f"{name}.wav") for name in names},
        dict.fromkeys(names, "n"),
        {},
        dict.fromkeys(names, seconds),
    ).write(folder / "data")
    return description


def measure(folder: Path, words: Sequence[str]) -> dict[str, float]:
    """A run of `svt embed` by itself."""
    out = folder / "e"
    command = [sys.executable, "-m", "svtoolkit.cli", "embed", f"model={folder / 'model'}", f"data={folder / 'data'}"]
    process = subprocess.Popen([*command, f"out={out}", "threads=1", "device=cpu", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"svt embed {' '.join(words)} ended with status {os.waitstatus_to_exitcode(status)}")
    record = yaml.safe_load(Path(f"{out}.yaml").read_text(encoding="utf-8"))
    speed = record["audio_seconds"] / record["wall_seconds"]
    cpu = usage.ru_utime + usage.ru_stime
    return {"resident_mib": round(usage.ru_maxrss / 1024), "speed": round(speed, 2), "cpu_seconds": round(cpu, 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--network", default="resnet34")
    parser.add_argument("--count", type=int, default=6, help="recordings")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a recording")
    options = parser.parse_args(words)
    load, rows = load_average(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        description = write_material(folder, options.network, options.count, options.seconds)
        memory = predict_or_recall_pass(description, "fp32")
        for row, given in ROWS.items():
            found: dict[str, Any] = {"row": row, "words": given, **measure(folder, given)}
            rows.append(found)
            print(found, file=sys.stderr, flush=True)
    predicted = {f"{seconds:g} s": round(memory.of(seconds) / 2**20) for seconds in (options.seconds, 120.0, 640.0)}
    write_record(
        options.output,
        "embedding",
        words,
        ["torch"],
        threads=1,
        load_average_before=load,
        tensors_mib=predicted,
        rows=rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
