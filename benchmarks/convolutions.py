"""How fast convolutions alone are on a CPU, in float32 and in 8 bits: the most that a file of 8 bits can gain.

    python -m benchmarks.convolutions --output benchmarks/results/convolutions.json

Four convolutions of 3x3 with rectifiers between them, of the sizes of the four stages of a ResNet34 that hears 4 s, as
`svt export` writes and quantises them, without anything else that a network has. Billions of multiplications and
additions a second of one thread (``gmacs``), by the processor's time, on which other work weighs less; rows take turns.
``product`` is a product of matrices by NumPy's BLAS, for what the processor can do in float32, and by torch in float32
and, where the processor has it, in bfloat16. ``whole`` is the gain
over torch by all four stages, each as often as a ResNet34 has it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from benchmarks.inference import IN_8_BITS, NAMES, has_bfloat16, least_times
from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.checkpoints.exported import EMBEDDING
from svtoolkit.deploy.precision import quantise
from svtoolkit.runtime.engines import ENGINES, open_engine
from svtoolkit.runtime.processor import processor_flags

PACKAGES = ("torch", "numpy", "onnxruntime", "openvino", "ncnn")
LAYERS = 4
STAGES = ((32, 80, 398, 6), (64, 40, 199, 8), (128, 20, 100, 12), (256, 10, 50, 6))
"""Channels, bins, frames, and how many convolutions a ResNet34 has of about this size."""
PRODUCT = 512


def write_stage(channels: int, bins: int, frames: int) -> tuple[nn.Module, dict[str, bytes]]:
    """The layers, and precision -> content of a file."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())]
    module, example = nn.Sequential(*layers).eval(), torch.randn(1, channels, bins, frames)
    stream = io.BytesIO()
    torch.onnx.export(
        module, (example,), stream,  # type: ignore[arg-type]  # a file object may be given
        input_names=["feats"], output_names=[EMBEDDING], opset_version=17, dynamo=False,
    )  # fmt: skip
    whole = stream.getvalue()
    return module, {"fp32": whole, "int8": quantise(whole, "feats", [example.numpy()])}


def measure(stages: Sequence[tuple[int, int, int, int]], repeats: int) -> list[dict[str, Any]]:
    """A row for the product, and for each stage, runtime and precision."""
    matrix = np.ones((PRODUCT, PRODUCT), dtype=np.float32)
    of_product = {"what": "product", "gmac": PRODUCT**3 / 1e9}
    runs: dict[str, Callable[[], object]] = {"product": lambda: matrix @ matrix}
    rows: dict[str, dict[str, Any]] = {"product": of_product}
    for kind, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        if name == "fp32" or has_bfloat16():
            of_kind = torch.from_numpy(matrix).to(kind)
            runs[f"product {name}"] = partial(torch.matmul, of_kind, of_kind)
            rows[f"product {name}"] = {**of_product, "runtime": "torch", "precision": name}
    for channels, bins, frames, _ in stages:
        module, files = write_stage(channels, bins, frames)
        given = np.random.default_rng(0).standard_normal((1, channels, bins, frames)).astype(np.float32)
        of_stage = {"what": f"{channels} x {bins} x {frames}", "gmac": LAYERS * 9 * channels**2 * bins * frames / 1e9}
        tensor = torch.from_numpy(given)
        runs[f"{channels} torch"] = lambda module=module, given=tensor: module(given)  # type: ignore[misc]
        rows[f"{channels} torch"] = {**of_stage, "runtime": "torch", "precision": "fp32"}
        for runtime in ENGINES:
            for precision, content in files.items():
                if precision == "int8" and runtime not in IN_8_BITS:
                    continue
                engine, name = open_engine(runtime, content, 1), f"{channels} {runtime} {precision}"
                runs[name] = lambda engine=engine, given=given: engine.run("feats", given)  # type: ignore[misc]
                rows[name] = {**of_stage, "runtime": NAMES[runtime], "precision": precision}
    with torch.inference_mode(), threadpool_limits(1):  # of NumPy's BLAS
        least = least_times(runs, repeats)
    return [
        {**row, "gmac": round(row["gmac"], 3), "milliseconds": round(1000 * used, 2),
         "gmacs": round(row["gmac"] / used, 1)}
        for (name, row), (_, used) in ((each, least[each[0]]) for each in rows.items())
    ]  # fmt: skip


def whole_gains(rows: Sequence[dict[str, Any]], stages: Sequence[tuple[int, int, int, int]]) -> dict[str, float]:
    """Runtime and precision -> time of all convolutions by torch as a multiple of the time there."""
    counts = {f"{channels} x {bins} x {frames}": count for channels, bins, frames, count in stages}
    times: dict[str, float] = {}
    for row in rows:
        if row["what"] in counts:
            name = f"{row['runtime']} {row['precision']}"
            times[name] = times.get(name, 0.0) + counts[row["what"]] * row["milliseconds"]
    return {name: round(times["torch fp32"] / each, 2) for name, each in times.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--repeats", type=int, default=20, help="turns")
    parser.add_argument("--stages", type=int, default=len(STAGES), help="of the network, beginning with the last")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    stages = STAGES[-options.stages :]
    load = load_average()
    rows = measure(stages, options.repeats)
    whole = whole_gains(rows, stages)
    for row in rows:
        print(row)
    print(whole)
    write_record(
        options.output, "convolutions", words, PACKAGES,
        flags=processor_flags(), load=[load, load_average()], rows=rows, whole=whole,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
