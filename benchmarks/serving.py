"""How many requests of 4 s a second `svt serve` answers, how late, and what it does when there are too many.

    python -m benchmarks.serving --output benchmarks/results/serving.json --model resnet34

The service is a process of its own on this machine, with one thread of arithmetic and a network of random weights, on
which the time does not depend. Each asker sends its next request when the last one is answered. `alone` is what the
service has to do for a request, decoding, speech check and embedding, done in this process without HTTP, before and
after. With more askers than places, what is refused (429) is asked again after what Retry-After says, and all that was
accepted has to be in the store at the end.
"""

from __future__ import annotations

import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import soundfile
import torch

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.config import FeaturesConfig
from svtoolkit.enrolment.store import SpeakerStore
from svtoolkit.models import build_model
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.serving.recording import decode

RATE, SECONDS = 16000, 4.0
VOICE = Path(__file__).resolve().parents[1] / "tests" / "material" / "sentence.flac"
QUEUE = 16
TURNS = 8
"""Embeddings without the service, before and after."""


def recording() -> bytes:
    """A voice, as wav."""
    samples, rate = soundfile.read(VOICE)
    assert rate == RATE
    stream = io.BytesIO()
    soundfile.write(stream, np.resize(samples, round(SECONDS * RATE)), RATE, format="WAV")
    return stream.getvalue()


def write_model(name: str, folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {"name": name, "num_bins": 80, "embedding_dim": 256}
    features = FeaturesConfig(sample_rate=RATE, num_bins=80)
    return write_released(folder, build_model(**sizes).state_dict(), ModelDescription(sizes, features))


def alone(model: SpeakerModel, content: bytes, times: int) -> list[float]:
    """Seconds of each of so many turns."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        model.embed(decode(content, sample_rate=RATE, max_seconds=60), min_voice=0.3)
        found.append(time.perf_counter() - begin)
    return found


@contextmanager
def served(model: Path, store: Path) -> Iterator[str]:
    """The address of a service."""
    words = [f"model={model}", f"store={store}", "port=0", f"queue={QUEUE}", "threads=1", "device=cpu"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "svtoolkit", "serve", *words], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://[\d.]+:\d+", line):
                yield found[0]
                break
    finally:
        process.terminate()
        process.wait()


def load(address: str, content: bytes, askers: int, requests: int, first: int) -> dict[str, object]:
    """Enrol so many speakers; seconds until an answer that accepts, refusals in between left out."""
    refused = 0

    def ask(number: int) -> float:
        nonlocal refused
        while True:
            begin = time.perf_counter()
            answer = client.post("/enrol", params={"name": f"s{number}"}, content=content)
            if answer.status_code != 429:
                assert answer.status_code == 201, answer.text
                return time.perf_counter() - begin
            refused += 1
            time.sleep(float(answer.headers["retry-after"]))

    limits = httpx.Limits(max_connections=askers)
    with httpx.Client(base_url=address, timeout=600, limits=limits) as client, ThreadPoolExecutor(askers) as pool:
        begin = time.perf_counter()
        seconds = list(pool.map(ask, range(first, first + requests)))
        elapsed = time.perf_counter() - begin
    quantiles = {f"p{share}_ms": round(1000 * float(np.percentile(seconds, share)), 1) for share in (50, 95, 99)}
    return {
        "askers": askers,
        "requests": requests,
        "per_second": round(requests / elapsed, 2),
        **quantiles,
        "refused_429": refused,
        "load_average": load_average(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--model", default="resnet34", help="network")
    parser.add_argument("--requests", type=int, default=100, help="of each number of askers")
    parser.add_argument("--askers", type=int, nargs="+", default=[1, 4, 16, 48], help="who ask at the same time")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    content = recording()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model, store = write_model(options.model, Path(folder) / "model"), Path(folder) / "speakers.db"
        loaded = SpeakerModel.load(model, device="cpu")
        turns = alone(loaded, content, TURNS)
        with served(model, store) as address:
            load(address, content, 1, 3, 10**6)
            for position, askers in enumerate(options.askers):
                row = load(address, content, askers, options.requests, position * options.requests)
                print(row, flush=True)
                rows.append(row)
        turns += alone(loaded, content, TURNS)
        lost = 3 + len(options.askers) * options.requests - len(SpeakerStore(store).speakers())
    write_record(
        options.output,
        "serving",
        words,
        ["torch", "numpy", "fastapi", "uvicorn"],
        model=options.model,
        seconds_of_audio=SECONDS,
        queue=QUEUE,
        alone_ms=round(1000 * statistics.median(turns), 1),
        accepted_but_not_stored=lost,
        results=rows,
    )
    print(f"alone: {1000 * statistics.median(turns):.1f} ms; accepted but not stored: {lost}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
