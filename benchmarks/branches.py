"""Time of one embedding of a RepVGG on a CPU: with the branches of training, and with one convolution in their place.

    python -m benchmarks.branches --output benchmarks/results/branches.json

Features of 4 s, batch 1; by torch, and by each runtime as a file of `svt export`, in float32 and in 8 bits. All ways
and both forms of a network take turns. ``times`` is the least time with branches divided by that without, by the clock,
``difference`` the largest of any value of an embedding from torch's with branches, of the largest of those, and
``megabytes`` the size of the file, each with branches and without. ``export`` is the form that `svt export` writes:
``one`` convolution a block, or ``branches`` where these are less work. Weights are random, the batch norms have seen
noise, and sounds that are made calibrate the 8-bit files.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import nn

from benchmarks.inference import (
    IN_8_BITS,
    NAMES,
    PACKAGES,
    difference,
    export_files,
    least_times,
    made_frames,
    write_model,
)
from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.deploy import graph
from svtoolkit.models.repvgg import deploy, for_inference
from svtoolkit.runtime.engines import ENGINES, open_engine
from svtoolkit.runtime.processor import processor_flags
from svtoolkit.scoring.speaker_model import SpeakerModel

NETWORKS = ("repvgg_tiny_a0", "repvgg_a1", "repvgg_b1g2", "repvgg_tiny_rsbb_a0")
FORMS = ("branches", "one")
RUNTIMES = {"fp32": tuple(ENGINES), "int8": IN_8_BITS}


class Form(NamedTuple):
    """A network in one of ``FORMS``, and its files by precision."""

    network: nn.Module
    files: dict[str, bytes]


def forms_of(model: SpeakerModel) -> dict[str, Form]:
    """As it is, and with all blocks deployed, whether or not that is less work."""
    whole = model.extractor.network
    one = copy.deepcopy(whole)
    deploy(one)
    forms = {}
    for name, network in zip(FORMS, (whole, one), strict=True):
        with mock.patch.object(graph, "for_inference", return_value=network):
            forms[name] = Form(network, export_files(model))
    return forms


def measure(forms: dict[str, Form], frames: np.ndarray, threads: int, repeats: int) -> list[dict[str, Any]]:
    """A row for torch, and for each runtime and precision."""
    torch.set_num_threads(threads)
    given = torch.from_numpy(frames - frames.mean(1, keepdims=True))

    @torch.inference_mode()
    def by_torch(network: nn.Module) -> np.ndarray:
        return network(given).numpy()

    runs: dict[str, Callable[[], Any]] = {}
    for form, (network, files) in forms.items():
        runs[f"torch fp32 {form}"] = partial(by_torch, network)
        for precision, runtimes in RUNTIMES.items():
            for runtime in runtimes:
                engine = open_engine(runtime, files[precision], threads)
                runs[f"{NAMES[runtime]} {precision} {form}"] = partial(engine.run, "feats", frames)
    walls = {way: wall for way, (wall, _) in least_times(runs, repeats).items()}
    expected, rows = runs["torch fp32 branches"](), []
    for way in dict.fromkeys(each.rsplit(" ", 1)[0] for each in runs):
        branches, one = (walls[f"{way} {form}"] for form in FORMS)
        rows.append(
            {
                "way": way, "threads": threads,
                "milliseconds": [round(1000 * branches, 2), round(1000 * one, 2)], "times": round(branches / one, 2),
                "difference": [difference(runs[f"{way} {form}"](), expected) for form in FORMS],
                "megabytes": [round(len(each.files[way.split(" ")[1]]) / 1e6, 2) for each in forms.values()],
            }
        )  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=7, help="turns")
    parser.add_argument("--seconds", type=float, default=4.0, help="of audio")
    options = parser.parse_args(words)
    load = load_average()
    rows = []
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            model = write_model(Path(folder) / "model", name)
        network, frames, forms = model.extractor.network, made_frames(model, options.seconds), forms_of(model)
        of_network = {"network": name, "export": "branches" if for_inference(network) is network else "one"}
        for threads in options.threads:
            found = [of_network | row for row in measure(forms, frames, threads, options.repeats)]
            print(*found, sep="\n", flush=True)
            rows += found
    write_record(
        options.output, "branches", words, PACKAGES, flags=processor_flags(), seconds=options.seconds,
        load=[load, load_average()], rows=rows,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
