"""What a manifest of the size of VoxCeleb2 costs: time to open, and memory with loader workers.

    python -m benchmarks.manifest --output benchmarks/results/manifest.json

Data directories of as many made-up utterances are opened in a process of their own, as arrays and by the reader that
keeps every entry as Python objects. Then workers are forked off and touch every utterance: memory that all share is
counted once (PSS of Linux).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.kaldi_dir import KaldiDir, Utterance

UTTERANCES, SPEAKERS = 1_092_009, 5_994
"""Of the development part of VoxCeleb2."""

VIDEO_LETTERS = string.ascii_letters + string.digits + "-_"
SPEEDS = (1.0, 0.9, 1.1)
MIB = 2**20


def write_directory(folder: Path, utterances: int, speakers: int) -> None:
    """Tables as the preparation of VoxCeleb2 writes them, of names that nobody has."""
    rng = random.Random(0)
    names = sorted(_names(rng, utterances, speakers))
    of_speaker: dict[str, list[str]] = {}
    with (
        open(folder / "wav.scp", "w") as audio,
        open(folder / "utt2spk", "w") as speech,
        open(folder / "utt2dur", "w") as durations,
    ):
        for name in names:
            speaker, video, clip = name[:7], name[8:19], name[20:]
            audio.write(f"{name} /corpora/voxceleb2/audio/{speaker}/{video}/{clip}.flac\n")
            speech.write(f"{name} {speaker}\n")
            durations.write(f"{name} {rng.uniform(4, 20):.6f}\n")
            of_speaker.setdefault(speaker, []).append(name)
    with open(folder / "spk2utt", "w") as table:
        table.writelines(f"{speaker} {' '.join(own)}\n" for speaker, own in of_speaker.items())


def _names(rng: random.Random, utterances: int, speakers: int) -> Iterator[str]:
    """Speakers in turn, eight clips a video."""
    videos: list[str] = []
    for number in range(utterances):
        clip, speaker = number // speakers % 8, number % speakers
        if clip == 0:
            videos[speaker : speaker + 1] = ["".join(rng.choices(VIDEO_LETTERS, k=11))]
        yield f"id{speaker + 10:05d}-{videos[speaker]}-{clip:05d}"


def open_as_arrays(folder: Path) -> Sequence[Utterance]:
    """As training does, with classes and fingerprint."""
    training_set = TrainingSet.build(Manifest.read(folder), speeds=SPEEDS, min_seconds=0.5)
    training_set.fingerprint()
    return training_set.utterances


def open_as_objects(folder: Path) -> Sequence[Utterance]:
    return KaldiDir.read(folder).utterances()


def measure_opening(opening: Callable[[Path], Sequence[Utterance]], folder: Path, workers: int) -> dict[str, Any]:
    """Seconds, MiB of the opening process, MiB more by all workers after each has touched every utterance."""
    own, other = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_measure, args=(opening, folder, workers, other))
    process.start()
    other.close()
    measured: dict[str, Any] = own.recv()
    process.join()
    return measured


def _measure(opening: Callable[[Path], Sequence[Utterance]], folder: Path, workers: int, answer: Any) -> None:
    before = _memory()
    begin, work = time.perf_counter(), time.process_time()
    utterances = opening(folder)
    record = {
        "utterances": len(utterances),
        "seconds": round(time.perf_counter() - begin, 4),
        "processor_seconds": round(time.process_time() - work, 4),
        "mib": round((_memory() - before) / MIB, 1),
    }
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    touched = [context.Event() for _ in range(workers)]
    processes = [context.Process(target=_touch_all, args=(utterances, each, stop)) for each in touched]
    for process, each in zip(processes, touched, strict=True):
        process.start()
        each.wait()
    everyone = [os.getpid(), *(process.pid for process in processes if process.pid is not None)]
    together = sum(_memory(pid) for pid in everyone)
    record[f"mib_with_{workers}_workers"] = round((together - before) / MIB, 1)
    stop.set()
    for process in processes:
        process.join()
    answer.send(record)


def _touch_all(utterances: Sequence[Utterance], touched: Any, stop: Any) -> None:
    sum(len(utterance.utterance_id) for utterance in utterances)
    touched.set()
    stop.wait()


def _memory(pid: int | str = "self") -> int:
    """Bytes of a process, what is shared divided by the number of those who share it."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--utterances", type=int, default=UTTERANCES)
    parser.add_argument("--speakers", type=int, default=SPEAKERS)
    parser.add_argument("--workers", type=int, default=4, help="loader processes")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        write_directory(Path(folder), options.utterances, options.speakers)
        ways = {"arrays": open_as_arrays, "objects": open_as_objects}
        results = {name: measure_opening(opening, Path(folder), options.workers) for name, opening in ways.items()}
    for name, record in results.items():
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in record.items())}")
    write_record(
        options.output,
        "manifest",
        words,
        ["numpy"],
        load_average=load_average(),
        results=results,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
