"""Time of the embeddings of whole lists on a CPU: one utterance after the other, and as `svt embed` takes them.

    python -m benchmarks.bulk --data DATA/speechocean762/eval DATA/librispeech_mini/eval --root DATA \
        --output benchmarks/results/bulk.json

The same network and the same utterances, from the files to the embeddings. The first row is a loop: an utterance is
read, its features are computed, and it goes through the network, on all threads. The others are ways of
``EmbeddingExtractor``, the last of which is that of `svt embed`. They take turns, so that other work on the machine
weighs on all of them alike. ``times`` is the least time of the loop divided by that of the row, by the clock, and
``processor_times`` the same by the processor's time, on which other work weighs less, but to which idle threads add.
``difference`` is the largest of any value of an embedding from that of the loop, of the largest of those values. The
weights are random, and the batch norms have seen noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.inference import processor_flags
from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.audio.files import read_audio
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance
from svtoolkit.features import build_front_end
from svtoolkit.models import build_model
from svtoolkit.scoring.extraction import EmbeddingExtractor

BINS = 80
WAYS: dict[str, dict[str, Any]] = {
    "batches of one, beside each other": {"batch_size": 1},
    "padded batches, one after the other": {"threads": 0},
    "padded batches, beside each other": {},
}
"""Row -> what it changes of `svt embed`."""


def build_network(name: str) -> torch.nn.Module:
    """Of random weights, whose batch norms have seen noise; in eval mode."""
    torch.manual_seed(0)
    network = build_model(name, num_bins=BINS, embedding_dim=256).train()
    with torch.no_grad():
        network(torch.randn(4, 200, BINS))
    return network.eval()


def loop(extractor: EmbeddingExtractor, utterances: Sequence[Utterance]) -> np.ndarray:
    """(utterances, embedding_dim), one after the other."""
    rate = extractor.front_end.sample_rate
    return np.stack([extractor.embed_waveform(read_audio(each.path, sample_rate=rate)) for each in utterances])


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
    built, front_end, device = build_network(network), build_front_end(), torch.device("cpu")
    makers: dict[str, Callable[[], np.ndarray]] = {}
    extractors = {"loop": EmbeddingExtractor(built, front_end, device)}
    for name, changes in WAYS.items():
        extractors[name] = EmbeddingExtractor(built, front_end, device, **{"threads": threads, **changes})
    for name, extractor in extractors.items():
        embed = loop if name == "loop" else by_lists
        makers[name] = lambda embed=embed, extractor=extractor: embed(extractor, utterances)  # type: ignore[misc]
        embed(extractor, utterances[: 2 * threads])  # warms up
    walls: dict[str, list[float]] = {name: [] for name in makers}
    processors: dict[str, list[float]] = {name: [] for name in makers}
    found: dict[str, np.ndarray] = {}
    for _ in range(turns):
        for name, make in makers.items():
            begin, used = time.perf_counter(), time.process_time()
            found[name] = make()
            walls[name].append(time.perf_counter() - begin)
            processors[name].append(time.process_time() - used)
            print(f"{name}: {walls[name][-1]:.2f} s, processor {processors[name][-1]:.2f} s", flush=True)
    wall, used = min(walls["loop"]), min(processors["loop"])
    return [
        {
            "way": name, "seconds": round(min(walls[name]), 2), "times": round(wall / min(walls[name]), 2),
            "processor_seconds": round(min(processors[name]), 2),
            "processor_times": round(used / min(processors[name]), 2),
            "difference": float(f"{np.abs(embeddings - found['loop']).max() / np.abs(found['loop']).max():.2g}"),
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
        options.output, "bulk", shown, ["torch"], flags=processor_flags(), network=options.network,
        threads=options.threads, utterances=len(utterances), audio_seconds=round(sum(seconds), 1),
        load=[load, load_average()], rows=rows,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
