"""Checks of numbers that must happen before anything is allocated or written, and before torch is imported."""

from __future__ import annotations

import math
from functools import reduce

from svtoolkit.config import AngularPrototypicalConfig, DistillationConfig, TrainConfig, TrainerConfig
from svtoolkit.config.front_ends import CROP_FRAME_MS, WaveformConfig
from svtoolkit.config.limits import check_limits
from svtoolkit.crops.batch_size import wanted_batch_size
from svtoolkit.crops.class_tuples import check_tuples, tuple_size
from svtoolkit.crops.sampler import BatchSampler, share_of
from svtoolkit.crops.stored_features import read_stored_features
from svtoolkit.data.bad_files import check_max_bad
from svtoolkit.errors import UserError
from svtoolkit.loggers.chosen import check_loggers
from svtoolkit.models.front_ends import check_warps
from svtoolkit.training.stage_settings import check_stages

_SMALLEST = {
    "data.crop_frames": 1,
    "data.num_workers": 0,
    "data.shuffle_shards": 1,
    "validation.speakers": 0,
    "validation.max_speakers": 2,
    "validation.every_epochs": 1,
    "trainer.devices": 1,
    "trainer.epochs": 1,
    "trainer.batch_size": 1,
    "trainer.max_batch_size": 1,
    "trainer.threads": 1,
    "trainer.nonfinite_patience": 1,
    "trainer.checkpoint_minutes": 0,
    "trainer.checkpoint_steps": 0,
    "trainer.keep_states": 1,
    "trainer.keep_last": 0,
    "trainer.keep_best": 0,
    "trainer.log_steps": 1,
}


def check_settings(config: TrainConfig, processes: int = 1) -> None:
    """Refuse numbers out of range, what this number of processes cannot do, and what stored features cannot.

    Raises:
        UserError: names the key, what was found and what was expected.
    """
    for key, smallest in _SMALLEST.items():
        value = reduce(getattr, key.split("."), config)
        if value is not None and value < smallest:  # type: ignore[operator]
            raise UserError(f"{key} is {value}, expected {smallest} or more")
    check_limits(config)
    shortest = math.ceil(config.features.frame_length_ms / CROP_FRAME_MS)
    if isinstance(config.features, WaveformConfig) and config.data.crop_frames < shortest:
        raise UserError(
            f"data.crop_frames is {config.data.crop_frames}, frames of {CROP_FRAME_MS:g} ms, expected {shortest} or "
            f"more: the network hears no less than {config.features.frame_length_ms:g} ms"
        )
    if config.validation.speakers == 1:
        raise UserError("validation.speakers is 1, expected 2 or more, whose trials can be drawn, or 0: no validation")
    check_max_bad(config.data.max_bad, key="data.max_bad")
    check_loggers(config.trainer)
    for key in ("loss.shard", "trainer.sync_batch_norm"):
        if processes == 1 and reduce(getattr, key.split("."), config):
            raise UserError(f"{key}=true needs several devices, and this run has one; leave it at false")
    if config.trainer.sync_batch_norm and config.trainer.device == "cpu":
        raise UserError("trainer.sync_batch_norm=true needs CUDA, and trainer.device is cpu; leave it at false")
    clip = config.trainer.gradient_clip
    if clip is not None and not clip > 0:
        raise UserError(f"trainer.gradient_clip is {clip}, expected a norm above 0, or null for none")
    decay = config.trainer.ema
    if decay is not None and not 0 < decay < 1:
        raise UserError(f"trainer.ema is {decay:g}, expected a decay above 0 and below 1, such as 0.999, or null")
    check_stages(config)
    if config.distillation.model is None and config.distillation != DistillationConfig():
        raise UserError(
            "distillation.weight or distillation.front_end is given, and distillation.model is null; say which network "
            "is learnt from, or leave them out"
        )
    read_stored_features(config)
    check_warps(config.features, config.data.warps)
    _check_pairwise(config)
    batch_size = wanted_batch_size(config.trainer)
    micro_batch = micro_batch_of(config.trainer, share_of(batch_size, processes))
    BatchSampler(batch_size, batch_size=batch_size, micro_batch=micro_batch, seed=config.seed, processes=processes)
    check_tuples(micro_batch, tuple_size(config.pairwise))


def _check_pairwise(config: TrainConfig) -> None:
    pairwise, shards = config.pairwise, config.data.shuffle_shards
    if not isinstance(pairwise, AngularPrototypicalConfig):
        return
    if pairwise.crops < 2:
        raise UserError(f"pairwise.crops is {pairwise.crops}, expected 2 or more of a class")
    if shards is not None:
        raise UserError(
            f"pairwise={pairwise.name} brings utterances of a class together, and data.shuffle_shards={shards} those "
            "of few shards; leave one of both out"
        )


def micro_batch_of(trainer: TrainerConfig, share: int) -> int:
    """Crops in memory at once on a device, from its share of an effective batch: at most that share."""
    wanted = trainer.micro_batch
    return share if wanted is None or share < wanted <= wanted_batch_size(trainer) else wanted
