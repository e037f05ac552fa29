"""How fast the filter bank is: a training batch of 64 crops of 2 s, against kaldi-native-fbank.

    python -m benchmarks.features --output benchmarks/results/features.json

Both compute the same 80 log-mel features (they are compared before they are timed). With two threads the filter bank
uses torch's, kaldi-native-fbank a thread for every half of the batch. Rounds alternate between all variants, so that
a busy machine slows them alike; the figure is the fastest round, the one least disturbed, beside the median. Two
threads that wait for each other suffer most from other work on the machine: see the load average that is stored too.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

import kaldi_native_fbank as knf
import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.features import FrontEnd, build_front_end

CROPS = 64
FRAMES = 200  # about 2 s
THREADS = (1, 2)
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Result:
    """One row of the table: milliseconds for the whole batch, and how many times faster than kaldi-native-fbank."""

    implementation: str
    device: str
    threads: int
    fastest_ms: float
    median_ms: float
    times_faster: float


def kaldi_native(waveforms: np.ndarray) -> np.ndarray:
    """float32 (batch, samples) in [-1, 1] -> (batch, frames, bins), one utterance after the other."""
    options = knf.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = "hamming"
    options.mel_opts.num_bins = 80
    utterances = []
    for waveform in waveforms:
        computer = knf.OnlineFbank(options)
        computer.accept_waveform(16000, waveform * 32768)
        computer.input_finished()
        utterances.append(np.stack([computer.get_frame(index) for index in range(computer.num_frames_ready)]))
    return np.stack(utterances)


def kaldi_native_in_threads(waveforms: np.ndarray, threads: int) -> np.ndarray:
    if threads == 1:
        return kaldi_native(waveforms)
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(kaldi_native, np.array_split(waveforms, threads))))


def torch_in_threads(front_end: FrontEnd, waveforms: Tensor, threads: int) -> Tensor:
    torch.set_num_threads(threads)
    features = front_end(waveforms)
    if waveforms.device.type == "cuda":
        torch.cuda.synchronize()
    return features


def run(rounds: int) -> list[Result]:
    """Check that both agree, then time them.

    Raises:
        RuntimeError: the features differ by more than 1e-4 in the mean.
    """
    front_end = build_front_end(remove_mean=False)
    generator = torch.Generator().manual_seed(0)
    waveforms = torch.randn(CROPS, front_end.num_samples(FRAMES), generator=generator) * 0.1
    samples = waveforms.numpy()
    # The mean, not the maximum: in the one filter of a million that is all but empty, both are rounding noise.
    difference = float(np.abs(front_end(waveforms[:4]).numpy() - kaldi_native(samples[:4])).mean())
    if difference > TOLERANCE:
        raise RuntimeError(f"the two filter banks differ by {difference} in the mean, expected at most {TOLERANCE}")

    variants: dict[tuple[str, str, int], Callable[[], object]] = {}
    for threads in THREADS:
        variants["kaldi-native-fbank", "cpu", threads] = partial(kaldi_native_in_threads, samples, threads)
        variants["svtoolkit", "cpu", threads] = partial(torch_in_threads, front_end, waveforms, threads)
    if torch.cuda.is_available():
        on_device = build_front_end(remove_mean=False).to("cuda")
        name = torch.cuda.get_device_name()
        variants["svtoolkit", name, 1] = partial(torch_in_threads, on_device, waveforms.to("cuda"), 1)

    milliseconds: dict[tuple[str, str, int], list[float]] = {variant: [] for variant in variants}
    for timed_round in range(-1, rounds):
        for variant, compute in variants.items():
            begin = time.perf_counter()
            compute()
            if timed_round >= 0:  # the first one warms up
                milliseconds[variant].append(1000 * (time.perf_counter() - begin))
    return [
        Result(
            *variant,
            round(min(taken), 2),
            round(statistics.median(taken), 2),
            round(min(milliseconds["kaldi-native-fbank", "cpu", variant[2]]) / min(taken), 2),
        )
        for variant, taken in milliseconds.items()
    ]


def format_table(results: Sequence[Result]) -> str:
    rows = ["| filter bank | device | threads | fastest, ms | median, ms | times faster |", "|---|---|---|---|---|---|"]
    for row in results:
        rows.append(
            f"| {row.implementation} | {row.device} | {row.threads} | {row.fastest_ms:.1f} | {row.median_ms:.1f} "
            f"| {row.times_faster:.1f} |"
        )
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--rounds", type=int, default=20, help="times that everything is measured")
    options = parser.parse_args(words)
    load = load_average()
    results = run(options.rounds)
    print(format_table(results))
    print(f"{os.cpu_count()} CPUs, load average before the start {load}")
    write_record(
        options.output,
        "features",
        words,
        ["torch", "numpy", "kaldi-native-fbank"],
        crops=CROPS,
        frames=FRAMES,
        rounds=options.rounds,
        load_average_before=load,
        results=[asdict(row) for row in results],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
