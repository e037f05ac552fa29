"""How fast crops come from disk to features on one core: against the common way, part by part, and out of shards.

    python -m benchmarks.loader --data DATA --output benchmarks/results/loader.json

Utterances of 8 s in FLAC, crops of 2 s with speed perturbation, dither, noise and reverberation as in the recipes, and
a batched filter bank, all in this process on one thread, all from a warm page cache. The common way (see
benchmarks/common_pipeline.py) is there with two filter banks: kaldi-native-fbank, and one in torch which is called for
one crop at a time, as torchaudio's is. Babble is of three to seven talkers here and of one there; what that costs shows
a row of its own, and so does noise in WAV, as MUSAN is published, for both. Every round loads the same crops in all
ways in turns. Speech is read from files and from shards, warm and, where the file system can forget, cold. DATA holds
speechocean762/train, musan_mini and rirs; without it everything is synthetic. Three minutes on a quiet machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common_pipeline import CommonPipeline, kaldi_native_features, torch_features
from benchmarks.loader_material import Material, describe, make_material
from benchmarks.loader_parts import measure_parts
from benchmarks.loader_reading import compare_reading
from benchmarks.machine import load_average, open_command, write_record
from benchmarks.step_time import Timing, time_in_turns
from svtoolkit.augmentation.augmenter import UNCHANGED, Augmenter
from svtoolkit.augmentation.build import build_augmenter
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import NoiseLibrary
from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.config import AugmentConfig
from svtoolkit.crops import crop as crops
from svtoolkit.crops.crop import CropDataset, CropGeometry
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd, build_front_end

FRAMES = 200
SPEEDS = (1.0, 0.9, 1.1)
MASKS = SpecAugment(probability=0.6, time_masks=1, time_width=10, freq_masks=1, freq_width=8)
AUGMENT = AugmentConfig()
ONE_TALKER = AugmentConfig(babble_talkers=[1, 1])

WORKER, BATCH, ONE = "augmented in the worker", "augmented in the batch", "augmented in the batch, one talker"
COMMON, COMMON_TORCH = "common, kaldi-native-fbank", "common, filter bank in torch"
WAV, COMMON_WAV = f"{BATCH}, noise in WAV", f"{COMMON}, noise in WAV"

TIMES_COMMON = 4.0
STEPS_PER_SECOND, STEP = 2.5, 128
"""A GPU that trains ResNet34 with as many crops a step."""
SHARDS_TO_FILES = 1.1


class Sources:
    """Everything that is opened once: training set, noise, impulse responses, filter bank."""

    def __init__(self, material: Material) -> None:
        self.front_end: FrontEnd = build_front_end()
        folders = {"flac": (material.noise, material.rirs), "wav": (material.noise_wav, material.rirs_wav)}
        self.noise_libraries = {
            name: (NoiseLibrary.build(Manifest.read(noise)), ImpulseLibrary.build(Manifest.read(rirs)))
            for name, (noise, rirs) in folders.items()
        }
        self.samples = self.front_end.num_samples(FRAMES)
        self.geometry = CropGeometry(self.front_end.sample_rate, self.samples, FRAMES, self.front_end.num_bins)
        self.manifests = {"files": Manifest.read(material.files), "shards": Manifest.read(material.shards)}

    def training_set(self, source: str = "files", speeds: Sequence[float] = SPEEDS) -> TrainingSet:
        return TrainingSet.build(self.manifests[source], speeds=speeds, min_seconds=0.0)

    def augmented(
        self, augment: AugmentConfig = AUGMENT, *, in_batch: bool = False, sounds: str = "flac"
    ) -> CropDataset:
        """Crops as a recipe has them."""
        augmenter = build_augmenter(augment, *self.noise_libraries[sounds], sample_rate=self.geometry.sample_rate)
        return self._crops(self.training_set(), 1.0, augmenter, in_batch)

    def plain(self, source: str) -> CropDataset:
        """Crops as they are in the files or shards."""
        return self._crops(self.training_set(source, (1.0,)), 0.0, UNCHANGED, False)

    def common(self, *, in_torch: bool = False, sounds: str = "flac") -> CommonPipeline:
        bank = torch_features(self.front_end) if in_torch else kaldi_native_features(self.geometry.bins)
        return CommonPipeline(self.training_set(), *self.noise_libraries[sounds], AUGMENT, self.samples, bank)

    def _crops(self, training_set: TrainingSet, dither: float, augmenter: Augmenter, in_batch: bool) -> CropDataset:
        options: dict[str, Any] = {"augmenter": augmenter, "augment_in_batch": in_batch}
        return CropDataset(training_set, self.geometry, MASKS, dither=dither, int16_scale=True, seed=0, **options)


def choose_batches(entries: int, batch: int, batches: int) -> list[list[tuple[int, int]]]:
    """Items (epoch, entry), the same in every round: batches of an epoch in random order.

    Raises:
        UserError: there are not that many entries.
    """
    if entries < batch * batches:
        raise UserError(f"{batches} batches of {batch} crops need as many utterances, found {entries}; ask for fewer")
    order = np.random.default_rng(0).permutation(entries)
    return [[(0, int(entry)) for entry in order[begin : begin + batch]] for begin in range(0, batch * batches, batch)]


def load_features(dataset: CropDataset, front_end: FrontEnd, batches: Sequence[Sequence[tuple[int, int]]]) -> Tensor:
    """As a training step does it; the features of the last batch."""
    for items in batches:
        batch = crops.collate_crops([dataset[item] for item in items])
        waveforms = batch.waveforms
        if batch.changes:
            waveforms = dataset.augmenter.apply(waveforms, batch.changes)
        features = dataset.spec_augment.apply(front_end(waveforms), batch.masks)
    return features


def load_in_common(pipeline: CommonPipeline, batches: Sequence[Sequence[tuple[int, int]]]) -> Tensor:
    for items in batches:
        features = pipeline.load(items)
    return features


def measure_speed(sources: Sources, batches: list[list[tuple[int, int]]], rounds: int) -> dict[str, dict[str, float]]:
    """Utterances a second of every way."""
    ours = {
        WORKER: sources.augmented(),
        BATCH: sources.augmented(in_batch=True),
        ONE: sources.augmented(ONE_TALKER, in_batch=True),
        WAV: sources.augmented(in_batch=True, sounds="wav"),
    }
    ways: dict[str, Callable[[], object]] = {
        name: partial(load_features, dataset, sources.front_end, batches) for name, dataset in ours.items()
    }
    theirs = {
        COMMON: sources.common(),
        COMMON_TORCH: sources.common(in_torch=True),
        COMMON_WAV: sources.common(sounds="wav"),
    }
    ways |= {name: partial(load_in_common, pipeline, batches) for name, pipeline in theirs.items()}
    utterances = sum(map(len, batches))
    timings = time_in_turns(ways, rounds)
    return {
        name: speed_of(timing, utterances, timings[COMMON_WAV if name in (WAV, COMMON_WAV) else COMMON])
        for name, timing in timings.items()
    }


def speed_of(timing: Timing, utterances: int, common: Timing) -> dict[str, float]:
    return {
        "utterances_per_second": round(utterances / timing.median, 1),
        "utterances_per_second_fastest": round(utterances / timing.fastest, 1),
        "processor_ms": round(1000 * timing.processor / utterances, 3),
        "times_common": round(common.median / timing.median, 2),
        "times_common_fastest": round(common.fastest / timing.fastest, 2),
        "times_common_processor": round(common.processor / timing.processor, 2),
    }


def profile(sources: Sources, batches: list[list[tuple[int, int]]], rounds: int) -> dict[str, dict[str, float]]:
    """Processor milliseconds of each part, a crop; what happens to some crops alone is spread over all."""
    utterances = sum(map(len, batches))
    found = {}
    for name, in_batch in ((WORKER, False), (BATCH, True)):
        dataset = sources.augmented(in_batch=in_batch)
        seconds = measure_parts(partial(load_features, dataset, sources.front_end, batches), rounds)
        found[name] = {part: round(1000 * taken / utterances, 3) for part, taken in seconds.items()}
    return found


def measure_shards(sources: Sources, material: Material, batch: int, batches: int, rounds: int) -> dict[str, Any]:
    """Milliseconds to read a crop out of files and out of shards."""
    items = choose_batches(len(sources.manifests["files"]), batch, batches)
    ways = {name: partial(_read, sources.plain(name), items) for name in ("files", "shards")}
    return compare_reading(ways, material.audio(), sum(map(len, items)), rounds)


def _read(dataset: CropDataset, batches: Sequence[Sequence[tuple[int, int]]]) -> None:
    for items in batches:
        crops.collate_crops([dataset[item] for item in items])


def compare_with_bars(
    speed: Mapping[str, Mapping[str, float]], shards: Mapping[str, Any]
) -> dict[str, dict[str, float | bool]]:
    """What was asked for, and what became of it, by medians; of the two ways to augment the quicker one."""
    quickest = max(speed[name]["utterances_per_second"] for name in (WORKER, BATCH))
    against = {name: quickest / speed[name]["utterances_per_second"] for name in (COMMON, COMMON_TORCH)}
    return {
        "times the common way": _bar(TIMES_COMMON, against[COMMON], against[COMMON] >= TIMES_COMMON),
        "times the common way, its filter bank in torch": {"measured": round(against[COMMON_TORCH], 3)},
        "times the common way, one talker in both": {"measured": speed[ONE]["times_common"]},
        "times the common way, noise in WAV": {"measured": speed[WAV]["times_common"]},
        "ResNet34 steps of 128 a second": _bar(STEPS_PER_SECOND, quickest / STEP, quickest / STEP >= STEPS_PER_SECOND),
        "shards to files, warm": _bar(
            SHARDS_TO_FILES, shards["shards_to_files"], shards["shards_to_files"] <= SHARDS_TO_FILES
        ),
    }


def _bar(wanted: float, measured: float, met: bool) -> dict[str, float | bool]:
    return {"wanted": wanted, "measured": round(measured, 3), "met": met}


def print_tables(results: Mapping[str, Any]) -> None:
    print("| way | utterances/s | fastest | processor, ms | times common |\n|---|---|---|---|---|")
    for name, row in results["speed"].items():
        print(
            f"| {name} | {row['utterances_per_second']:.0f} | {row['utterances_per_second_fastest']:.0f} "
            f"| {row['processor_ms']:.2f} | {row['times_common']:.2f} |"
        )
    parts = results["parts_ms"]
    print(f"\n| part, ms | {' | '.join(parts)} |\n|---|---|---|")
    for part in parts[WORKER]:
        print(f"| {part} | {' | '.join(f'{column.get(part, 0.0):.3f}' for column in parts.values())} |")
    print(f"| together | {' | '.join(f'{sum(column.values()):.3f}' for column in parts.values())} |")
    print(f"\nreading: {json.dumps(results['reading'])}")
    for name, bar in results["bars"].items():
        print(f"{name}: {bar}")


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument(
        "--data", type=Path, help="folder of speechocean762, musan_mini and rirs; else all is synthetic"
    )
    parser.add_argument("--utterances", type=int, default=600, help="joined to 8 s each")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of an utterance")
    parser.add_argument("--batch", type=int, default=STEP, help="crops of a batch")
    parser.add_argument("--batches", type=int, default=3, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=7, help="times that everything is measured")
    options = parser.parse_args(words)
    load = load_average()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        counts = {"utterances": options.utterances, "seconds": options.seconds, "per_shard": 200}
        material = make_material(Path(folder), options.data, **counts)
        sources = Sources(material)
        batches = choose_batches(len(sources.training_set()), options.batch, options.batches)
        speed = measure_speed(sources, batches, options.rounds)
        parts = profile(sources, batches, options.rounds)
        reading = measure_shards(sources, material, options.batch, options.batches, options.rounds)
        about = describe(material)
    results = {"speed": speed, "parts_ms": parts, "reading": reading, "bars": compare_with_bars(speed, reading)}
    print_tables(results)
    print(f"{os.cpu_count()} CPUs, load average before the start {load}")
    write_record(
        options.output,
        "loader",
        words,
        ["torch", "numpy", "scipy", "soundfile", "soxr", "kaldi-native-fbank"],
        load_average_before=load,
        material=about,
        crop={"frames": FRAMES, "speeds": SPEEDS, "batch": options.batch, "batches": options.batches},
        rounds=options.rounds,
        threads=torch.get_num_threads(),
        results=results,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
