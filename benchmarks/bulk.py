"""Time of the embeddings of whole lists on a CPU: one utterance after the other, and as `svt embed` takes them.

    python -m benchmarks.bulk --data DATA/speechocean762/eval DATA/librispeech_mini/eval --root DATA \
        --output benchmarks/results/bulk.json

The same network and the same utterances, from the files to the embeddings. The first row is a loop: an utterance is
read, its features are computed, and it goes through the network, on all threads. The next are ways of
``EmbeddingExtractor``, the last of which is that of `svt embed`; then the same network as a file of `svt export`, in
float32 and with features by numpy, by each runtime as `svt embed` takes it. They take turns, so that other work on the
machine weighs on all of them alike. ``times`` is the least time of the loop divided by that of the row, by the clock,
and ``processor_times`` the same by the processor's time, on which other work weighs less, but to which idle threads
add. ``difference`` is the largest of any value of an embedding from that of the loop, of the largest of those values.
The weights are random, and the batch norms have seen noise.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.inference import NAMES, difference, write_model
from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.audio.files import read_audio
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.deploy.export import describe_export
from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.metadata import with_metadata
from svtoolkit.features import build_front_end
from svtoolkit.runtime.engines import ENGINES
from svtoolkit.runtime.extraction import RuntimeExtractor
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.runtime.processor import processor_flags
from svtoolkit.scoring.extraction import EmbeddingExtractor

WAYS: dict[str, dict[str, Any]] = {
    "batches of one, beside each other": {"batch_size": 1},
    "padded batches, one after the other": {"threads": 0},
    "padded batches, beside each other": {},
}
"""Row -> what it changes of `svt embed`."""
BY_RUNTIME = "exported, by {}, beside each other"


def loop(extractor: EmbeddingExtractor, utterances: Sequence[Utterance]) -> np.ndarray:
    """(utterances, embedding_dim), one after the other."""
    rate = extractor.front_end.sample_rate
    return np.stack([extractor.embed_waveform(read_audio(each.path, sample_rate=rate)) for each in utterances])


def by_runtime(extractor: RuntimeExtractor, utterances: Sequence[Utterance]) -> np.ndarray:
    """The same of an exported file.

    Raises:
        RuntimeError: an utterance has no embedding.
    """
    found = list(extractor.embed(utterances))
    if failures := [reason for each in found for reason in each.failures.values()]:
        raise RuntimeError(f"{len(failures)} have no embedding: {failures[0]}")
    return np.stack([embedding for each in found for embedding in each.embeddings])


def by_lists(extractor: EmbeddingExtractor, utterances: Sequence[Utterance]) -> np.ndarray:
    """The same, as `svt embed` does it.

    Raises:
        RuntimeError: an utterance has no embedding.
    """
    found = extractor.extract(utterances)
    if found.failures:
        raise RuntimeError(f"{len(found.failures)} have no embedding: {next(iter(found.failures.values()))}")
    return found.embeddings


def measure(network: str, utterances: Sequence[Utterance], threads: int, turns: int) -> list[dict[str, Any]]:
    """A row for the loop and for each of ``WAYS``."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), network)
    built, front_end, device = model.extractor.network, build_front_end(), torch.device("cpu")
    of_loop = EmbeddingExtractor(built, front_end, device)
    ways: dict[str, Callable[[Sequence[Utterance]], np.ndarray]] = {"loop": partial(loop, of_loop)}
    for name, changes in WAYS.items():
        extractor = EmbeddingExtractor(built, front_end, device, **{"threads": threads, **changes})
        ways[name] = partial(by_lists, extractor)
    content = with_metadata(
        export_graph(built, front_end, waveform=False),
        describe_export(model, waveform=False, precision="fp32", weights_sha256=None),
    )
    for runtime in ENGINES:
        exported = RuntimeModel.of(content, runtime=runtime, threads=threads, streams=threads)
        ways[BY_RUNTIME.format(NAMES[runtime])] = partial(by_runtime, RuntimeExtractor(exported, streams=threads))
    for way in ways.values():
        way(utterances[: 2 * threads])  # warms up
    walls: dict[str, list[float]] = {name: [] for name in ways}
    processors: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, np.ndarray] = {}
    for _ in range(turns):
        for name, way in ways.items():
            begin, used = time.perf_counter(), time.process_time()
            found[name] = way(utterances)
            walls[name].append(time.perf_counter() - begin)
            processors[name].append(time.process_time() - used)
            print(f"{name}: {walls[name][-1]:.2f} s, processor {processors[name][-1]:.2f} s", flush=True)
    wall, used = min(walls["loop"]), min(processors["loop"])
    return [
        {
            "way": name, "seconds": round(min(walls[name]), 4), "times": round(wall / min(walls[name]), 2),
            "processor_seconds": round(min(processors[name]), 4),
            "processor_times": round(used / min(processors[name]), 2),
            "difference": difference(embeddings, found["loop"]),
        }
        for name, embeddings in found.items()
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--data", nargs="+", required=True, help="data directories whose utterances are whole files")
    parser.add_argument("--root", required=True, help="of the relative paths in them")
    parser.add_argument("--network", default="resnet34")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="of so many utterances one")
    options = parser.parse_args(words)
    utterances = [
        utterance
        for folder in options.data
        for utterance in KaldiDir.read(folder, options.root).utterances()[:: options.every]
    ]
    load = load_average()
    rows = measure(options.network, utterances, options.threads, options.turns)
    for row in rows:
        print(row)
    shown = [word.replace(options.root, "DATA") for word in words]
    seconds = [each.duration or 0.0 for each in utterances]
    write_record(
        options.output, "bulk", shown, ["torch", "onnxruntime", "openvino", "ncnn"], flags=processor_flags(),
        network=options.network, threads=options.threads, utterances=len(utterances),
        audio_seconds=round(sum(seconds), 1),
        load=[load, load_average()], rows=rows,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
