"""Time of one embedding on a CPU: the same weights by torch and by the runtimes of exported files.

    python -m benchmarks.inference --output benchmarks/results/inference.json

Features of 4 s, batch 1, of 1 and of 2 threads. The rows of a number of threads take turns, so that other work on the
machine weighs on all of them alike; ``times`` is torch's least time divided by that of the row, by the clock, and
``processor_times`` the same by the processor's time, on which other work weighs less. The weights are random; the
8-bit file is calibrated on sounds that are made, which is of no matter for its speed. ``start`` is a process of
`svt verify` on two recordings, its imports, its file and both embeddings included, by the clock and by the processor.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.deploy.export import describe_export
from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.metadata import with_metadata
from svtoolkit.deploy.precision import quantise, store_in_16_bits
from svtoolkit.deploy.recordings import made_recordings
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config
from svtoolkit.runtime.engines import ENGINES, open_engine
from svtoolkit.runtime.filter_bank import NumpyFilterBank
from svtoolkit.runtime.openvino_engine import OpenVino
from svtoolkit.runtime.processor import processor_flags
from svtoolkit.scoring.speaker_model import SpeakerModel

PACKAGES = ("torch", "onnxruntime", "openvino", "ncnn")
RATE = 16000
VOICE = Path(__file__).resolve().parents[1] / "tests" / "material" / "sentence.flac"
NAMES = {"onnx": "onnxruntime", "openvino": "OpenVINO", "ncnn": "ncnn"}
IN_8_BITS = ("onnx", "openvino")
"""Of ``ENGINES`` those that run convolutions in 8 bits."""
COMPUTED = "bf16 arithmetic"
"""Beside bf16, which is stored in bfloat16 and computed with in float32 unless the processor is faster in it."""


def write_model(folder: Path, network: str) -> SpeakerModel:
    """Of random weights, whose batch norms have seen noise."""
    torch.manual_seed(0)
    description = ModelDescription({"name": network, "num_bins": 80, "embedding_dim": 256}, features_config({}))
    built = build_model(**description.model).train()
    with torch.no_grad():
        built(torch.randn(4, 200, 80))
    write_released(folder, built.eval().state_dict(), description)
    return SpeakerModel.load(folder, device="cpu")


def export_files(model: SpeakerModel) -> dict[str, bytes]:
    """Precision -> content."""
    whole = export_graph(model.extractor.network, model.extractor.front_end, waveform=False)
    bank = NumpyFilterBank(model.description.features)
    made = [bank(each.samples)[np.newaxis] for each in made_recordings(RATE)]
    files = {"fp32": whole, "bf16": store_in_16_bits(whole, "bf16"), "int8": quantise(whole, "feats", made)}
    return {
        precision: with_metadata(
            content, describe_export(model, waveform=False, precision=precision, weights_sha256=None)
        )
        for precision, content in files.items()
    }


def least_times(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds of each, which take turns, by the clock and by the processor: other work on the machine only adds.

    Each is run twice and timed the second time: caches are its own by then, and the threads of the one before, which
    wait for more work for a while before they sleep, are asleep.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            run()
            begin, used = time.perf_counter(), time.process_time()
            run()
            times[name].append((time.perf_counter() - begin, time.process_time() - used))
    return {name: (min(wall for wall, _ in each), min(used for _, used in each)) for name, each in times.items()}


def has_bfloat16() -> bool:
    """Whether the processor multiplies in bfloat16, fast or not."""
    return bool({"avx512_bf16", "amx_bf16"} & set(processor_flags()))


def cosine(found: np.ndarray, expected: np.ndarray) -> float:
    return float(found @ expected / np.linalg.norm(found) / np.linalg.norm(expected))


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest of any value, of the largest of those expected: two digits."""
    return float(f"{np.abs(found - expected).max() / np.abs(expected).max():.2g}")


def made_frames(model: SpeakerModel, seconds: float) -> np.ndarray:
    """(1, frames, bins) of noise."""
    noise = np.random.default_rng(0).standard_normal(round(seconds * RATE)).astype(np.float32) * 0.1
    return NumpyFilterBank(model.description.features)(noise)[np.newaxis]


def measure(
    model: SpeakerModel, files: dict[str, bytes], threads: int, repeats: int, seconds: float
) -> list[dict[str, Any]]:
    """A row for torch and for each runtime and precision."""
    torch.set_num_threads(threads)
    frames = made_frames(model, seconds)
    network, given = model.extractor.network, torch.from_numpy(frames - frames.mean(1, keepdims=True))

    @torch.inference_mode()
    def by_torch(precision: str) -> np.ndarray:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == COMPUTED):
            return network(given).float().numpy()

    runs: dict[str, Callable[[], Any]] = {
        f"torch {each}": partial(by_torch, each) for each in ("fp32", COMPUTED) if each == "fp32" or has_bfloat16()
    }
    for runtime in ENGINES:
        for precision, content in files.items():
            if precision == "int8" and runtime not in IN_8_BITS:
                continue
            runs[f"{NAMES[runtime]} {precision}"] = partial(open_engine(runtime, content, threads).run, "feats", frames)
    if has_bfloat16():
        runs[f"{NAMES['openvino']} {COMPUTED}"] = partial(
            OpenVino(files["bf16"], threads, bfloat16=True).run, "feats", frames
        )
    expected = runs["torch fp32"]()[0]
    least = least_times(runs, repeats)
    wall, used = least["torch fp32"]
    return [
        {
            **dict(zip(("runtime", "precision"), name.split(" ", 1), strict=True)), "threads": threads,
            "milliseconds": round(1000 * seconds, 1), "times": round(wall / seconds, 2),
            "processor_milliseconds": round(1000 * processor, 1), "processor_times": round(used / processor, 2),
            "cosine": round(cosine(runs[name]()[0], expected), 6),
        }
        for name, (seconds, processor) in least.items()
    ]  # fmt: skip


def measure_start(folder: Path, files: dict[str, bytes], seconds: float, starts: int) -> list[dict[str, Any]]:
    """`svt verify` of two recordings of a voice, the best of so many processes each."""
    samples, rate = soundfile.read(VOICE)
    assert rate == RATE
    audio = [str(folder / f"{number}.wav") for number in range(2)]
    for number, path in enumerate(audio):
        soundfile.write(path, np.resize(np.roll(samples, number * RATE), round(seconds * RATE)), RATE)
    rows = []
    for precision in ("fp32", "int8"):
        path = folder / f"{precision}.onnx"
        path.write_bytes(files[precision])
        walls, processors = [], []
        for _ in range(starts):
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            found = subprocess.run(
                [sys.executable, "-m", "svtoolkit", "verify", str(path), *audio, "threshold=0"],
                check=False, capture_output=True, text=True,
            )  # fmt: skip
            assert found.returncode in (0, 2), found.stderr
            walls.append(time.perf_counter() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        rows.append(
            {"precision": precision, "seconds": round(min(walls), 2), "processor_seconds": round(min(processors), 2)}
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--network", default="resnet34")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15, help="turns")
    parser.add_argument("--seconds", type=float, default=4.0, help="of audio")
    parser.add_argument("--starts", type=int, default=5, help="processes whose start is timed")
    options = parser.parse_args(words)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", options.network)
        files = export_files(model)
        load = load_average()
        rows = []
        for threads in options.threads:
            printed = len(rows)
            rows += measure(model, files, threads, options.repeats, options.seconds)
            print(*rows[printed:], sep="\n", flush=True)
        start = measure_start(Path(folder), files, options.seconds, options.starts)
        print(start)
    write_record(
        options.output, "inference", words, PACKAGES, flags=processor_flags(), network=options.network,
        seconds=options.seconds, load=[load, load_average()],
        megabytes={precision: round(len(content) / 1e6, 2) for precision, content in files.items()},
        rows=rows, start=start,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
