"""What `svt convert` saves by flushing many files together: one flush a batch against two a file.

    python -m benchmarks.conversion --output benchmarks/results/conversion.json

Short generated WAV files are converted to FLAC twice a round, into new folders: as `svt convert` does (the files of a
batch are written aside, flushed together with their file system, then renamed), and as ``atomic_write`` does for a
single file (each is flushed, renamed, and its folder flushed). Rounds alternate; the figure is the fastest round beside
the median. Both leave the same files, which is checked. How long a flush takes is a property of the disk and of what
else is written to it: the file system of the folder stands in the JSON, and the figure is a ratio.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import soundfile

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.data import conversion_worker
from svtoolkit.data.conversion import BATCH, convert_corpus
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.system.atomic import atomic_write

RATE = 16000
FILES, SECONDS, PER_SPEAKER = 1000, 0.5, 50
ROUNDS = 5


def write_material(folder: Path, files: int) -> Path:
    """A data directory of short WAV files of noise; returns its folder."""
    rng = np.random.default_rng(0)
    kaldi_dir = KaldiDir()
    for number in range(files):
        speaker = f"s{number // PER_SPEAKER:04d}"
        path = folder / "wav" / f"{speaker}-{number:06d}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, 0.1 * rng.standard_normal(int(RATE * SECONDS)), RATE, subtype="PCM_16")
        kaldi_dir.wav_scp[path.stem], kaldi_dir.utt2spk[path.stem] = str(path), speaker
    kaldi_dir.write(folder / "data")
    return folder / "data"


@contextmanager
def flush_each_file() -> Iterator[Callable[[str, bytes], None]]:
    """In place of ``atomic_batch``: every file by itself, its content and its name flushed."""

    def write(path: str, content: bytes) -> None:
        with atomic_write(path, "wb") as stream:
            stream.write(content)

    yield write


def convert(source: Path, out: Path, *, together: bool) -> float:
    """Seconds that a conversion by one process takes."""
    os.sync()  # what was written before is not to be waited for here
    begin = time.perf_counter()
    if together:
        convert_corpus(source, out)
    else:
        with patch.object(conversion_worker, "atomic_batch", flush_each_file):
            convert_corpus(source, out)
    return time.perf_counter() - begin


def content_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "audio").rglob("*.flac")}


def measure(folder: Path, files: int, rounds: int) -> dict[str, dict[str, float]]:
    """Fastest and median seconds of both ways, and files a second of the fastest.

    Raises:
        RuntimeError: they leave different files.
    """
    source = write_material(folder, files)
    seconds: dict[str, list[float]] = {"one flush a batch": [], "two flushes a file": []}
    for number in range(rounds):
        written = []
        for name, taken in seconds.items():
            out = folder / f"{number} {name}"
            taken.append(convert(source, out, together=name == "one flush a batch"))
            written.append(content_of(out))
        if written[0] != written[1] or len(written[0]) != files:
            raise RuntimeError(f"the two ways left {len(written[0])} and {len(written[1])} files, or other content")
    return {
        name: {
            "fastest_seconds": round(min(taken), 3),
            "median_seconds": round(statistics.median(taken), 3),
            "files_a_second": round(files / min(taken)),
        }
        for name, taken in seconds.items()
    }


def file_system_of(folder: Path) -> str:
    """Its type, as Linux names it; empty elsewhere."""
    mounts = Path("/proc/mounts")
    lines = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()] if mounts.is_file() else []
    above = [(Path(line[1]), line[2]) for line in lines if folder.resolve().is_relative_to(line[1])]
    return max(above, key=lambda found: len(found[0].parts))[1] if above else ""


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="on the disk that is measured; default: that of temporary files")
    options = parser.parse_args(words)
    load = load_average()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file_system = file_system_of(Path(folder))
        results = measure(Path(folder), options.files, options.rounds)
    together, alone = results.values()
    ratio = round(alone["fastest_seconds"] / together["fastest_seconds"], 2)
    for name, found in results.items():
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in found.items())}")
    print(f"one flush a batch is {ratio} times as fast")
    write_record(
        options.output,
        "conversion",
        words,
        ["numpy", "soundfile"],
        load_average_before=load,
        file_system=file_system,
        files=options.files,
        seconds_each=SECONDS,
        files_a_batch=BATCH,
        rounds=options.rounds,
        times_faster=ratio,
        results=results,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
