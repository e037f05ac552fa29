"""Part loader: what happens to crops on the device, and how many arrive there in a second.

The material is synthetic, as `benchmarks.loader` makes it.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.subjects import seconds_of
from benchmarks.step_time import synchronizer

if TYPE_CHECKING:
    from benchmarks.loader import Sources

UTTERANCES, SECONDS, BATCH = 512, 8.0, 128
WORKERS = (0, 2, 4, 8)


def items(settings: Settings) -> Items:
    """Keys: a stage on the device, or a number of workers."""
    with ExitStack() as stack:
        sources = functools.cache(lambda: stack.enter_context(_sources(settings)))
        for stage in ("copy", "filter bank", "augmentation", "all of them"):
            yield stage, lambda stage=stage: on_device(sources(), stage, settings)  # type: ignore[misc]
        for where in ("on the device", "in the workers"):
            for workers in WORKERS[:1] if settings.tiny else WORKERS:
                yield (
                    f"{workers} workers, augmented {where}",
                    lambda w=workers, d=where == "on the device": arriving(sources(), w, d, settings),  # type: ignore[misc]
                )


@contextmanager
def _sources(settings: Settings) -> Iterator[Sources]:
    from benchmarks.loader import Sources
    from benchmarks.loader_material import make_material

    with tempfile.TemporaryDirectory() as folder:
        count, length = (6, 3.0) if settings.tiny else (UTTERANCES, SECONDS)
        sources = Sources(make_material(Path(folder), None, utterances=count, seconds=length, per_shard=200))
        sources.front_end.to(settings.device)
        yield sources


def on_device(sources: Sources, stage: str, settings: Settings) -> dict[str, Any]:
    """Seconds of one stage on a batch; augmentation is of the crops that are drawn for it, most of them."""
    from svtoolkit.crops import crop as crops

    dataset = sources.augmented(in_batch=True)
    size = 4 if settings.tiny else BATCH
    loaded = crops.collate_crops([dataset[(0, entry)] for entry in range(size)])
    pinned = loaded.waveforms.pin_memory() if settings.device.type == "cuda" else loaded.waveforms
    batch = loaded.to(settings.device)

    def run() -> None:
        waveforms = batch.waveforms
        if stage in ("copy", "all of them"):
            waveforms = pinned.to(settings.device, non_blocking=True)
        if stage in ("augmentation", "all of them") and batch.changes:
            waveforms = dataset.augmenter.apply(waveforms, batch.changes)
        if stage in ("filter bank", "all of them"):
            dataset.spec_augment.apply(sources.front_end(waveforms), batch.masks)

    found = seconds_of(run, settings)
    changed = {name: len(rows.rows) for name, rows in batch.changes.items()}
    return {"batch": size, **found, "crops_per_second": round(size / found["median_s"]), "changed": changed}


def arriving(sources: Sources, workers: int, in_batch: bool, settings: Settings) -> dict[str, Any]:
    """Crops a second from files to features on the device, with nothing else to do."""
    from svtoolkit.crops.loader import load_crops
    from svtoolkit.crops.sampler import BatchSampler

    dataset = sources.augmented(in_batch=in_batch)
    size = 4 if settings.tiny else BATCH
    sampler = BatchSampler(len(sources.training_set()), batch_size=size, micro_batch=size, seed=0)
    begin, crops = 0.0, 0
    cuda = settings.device.type == "cuda"
    for number, loaded in enumerate(load_crops(dataset, sampler, num_workers=workers, pin_memory=cuda)):
        batch = loaded.to(settings.device)
        waveforms = dataset.augmenter.apply(batch.waveforms, batch.changes) if batch.changes else batch.waveforms
        dataset.spec_augment.apply(sources.front_end(waveforms), batch.masks)
        synchronizer(settings.device)()
        if number == 0:  # workers have started
            begin = time.perf_counter()
        else:
            crops += size
    return {"workers": workers, "batch": size, "crops_per_second": round(crops / (time.perf_counter() - begin), 1)}
