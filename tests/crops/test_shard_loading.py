"""Crops of shards, loaded by more workers and processes than there are shards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shard_material import write_corpus

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import CropDataset, CropGeometry
from svtoolkit.crops.loader import load_crops
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import BatchSampler
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.sharding.writer import write_shards


def load(data: Path, *, num_workers: int, rank: int = 0, processes: int = 1) -> list[torch.Tensor]:
    training_set = TrainingSet.build(Manifest.read(data), speeds=(1.0, 1.1), min_seconds=0.0)
    crops = CropDataset(
        training_set,
        CropGeometry(16000, 2000, frames=11, bins=24),
        SpecAugment(0.0, 0, 0, 0, 0),
        dither=0.0,
        int16_scale=True,
        seed=1,
    )
    sampler = BatchSampler(len(crops), batch_size=4, micro_batch=2, seed=0, rank=rank, processes=processes)
    return [batch.waveforms for batch in load_crops(crops, sampler, num_workers=num_workers, pin_memory=False)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("per_shard", [100, 10])
def test_fewer_shards_than_workers_and_processes(per_shard, tmp_path):
    """One shard, and two of which one holds two utterances: each crop is read once, by whoever has its turn."""
    write_shards(write_corpus(tmp_path), tmp_path / "shards", per_shard=per_shard)
    files = load(tmp_path / "data", num_workers=0)
    assert len(files) == 12
    for ours, theirs in zip(load(tmp_path / "shards", num_workers=3), files, strict=True):
        assert torch.equal(ours, theirs)
    # 2 processes of 3 workers: each takes its half of every batch.
    shares = [load(tmp_path / "shards", num_workers=3, rank=rank, processes=2) for rank in (0, 1)]
    for step, batches in enumerate(zip(*shares, strict=True)):
        for rank, batch in enumerate(batches):
            assert torch.equal(batch, files[2 * step + rank])
