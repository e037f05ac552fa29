"""Numbers of a configuration that would do harm before anything else refuses them."""

from __future__ import annotations

from functools import reduce

from svtoolkit.config import TrainConfig, TrainerConfig
from svtoolkit.errors import UserError

LARGEST_SEED = 2**32 - 1
"""NumPy's legacy generator takes no larger one."""

_SMALLEST = {
    "data.crop_frames": 1,
    "data.num_workers": 0,
    "data.shuffle_shards": 1,
    "validation.speakers": 0,
    "validation.every_epochs": 1,
    "trainer.epochs": 1,
    "trainer.batch_size": 1,
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
    """Refuse numbers out of range, and what so many processes cannot do.

    Raises:
        UserError: names the key, what was found and what was expected.
    """
    for key, smallest in _SMALLEST.items():
        value = reduce(getattr, key.split("."), config)
        if value is not None and value < smallest:  # type: ignore[operator]
            raise UserError(f"{key} is {value}, expected {smallest} or more")
    if not 0 <= config.seed <= LARGEST_SEED:
        raise UserError(f"seed is {config.seed}, expected a number from 0 to {LARGEST_SEED}")
    for key in ("loss.shard", "trainer.sync_batch_norm"):
        if processes == 1 and reduce(getattr, key.split("."), config):
            raise UserError(f"{key}=true needs several devices, and this run has one; leave it at false")
    clip = config.trainer.gradient_clip
    if clip is not None and not clip > 0:
        raise UserError(f"trainer.gradient_clip is {clip}, expected a norm above 0, or null for none")


def micro_batch_of(trainer: TrainerConfig, share: int) -> int:
    """Crops that are in memory at once on a device whose share of a step is so many.

    What is set for one card may be more than the share of one of several: then it is the share.
    """
    wanted = trainer.micro_batch
    return share if wanted is None or share < wanted <= trainer.batch_size else wanted
