"""Parts of a run that take more than a call: random numbers, front end, and what is trained with its first weights."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from svtoolkit.config import TrainConfig
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.distributed.replication import synchronise_batch_norm
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.assembly import Trainable, build_trainable
from svtoolkit.training.initialisation import Start, choose_classes


def seed_everything(config: TrainConfig, world: World = ALONE) -> None:
    """Seed all random generators of the process; choose its threads and whether cuDNN may differ from run to run."""
    random.seed(config.seed)
    np.random.seed(config.seed)
    torch.manual_seed(config.seed)
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    elif world.local_size > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // world.local_size))
    torch.backends.cudnn.deterministic = config.trainer.deterministic
    torch.backends.cudnn.benchmark = not config.trainer.deterministic


def trainable_with_weights(
    config: TrainConfig,
    training_set: TrainingSet,
    start: Start | None,
    state: dict[str, Any] | None,
    device: torch.device,
    world: World,
) -> Trainable:
    """Network, head and optimizer; the weights are new, or those of ``start``.

    Args:
        state: that is loaded later; it decides about the number of classes.

    Raises:
        UserError: a part that cannot be built, or a start that does not fit it.
    """
    num_classes = None if state is None else len(state["head"]["weight"])
    if start is not None:
        start = choose_classes(start, config, training_set)
        num_classes = start.num_classes
    trainable = build_trainable(
        config.model,
        config.memory,
        config.loss,
        config.optim,
        num_bins=config.features.num_bins,
        num_classes=num_classes or training_set.num_classes,
        device=device,
        channels_last=config.trainer.channels_last,
        frames=front_end_of(config.features).crop_size(config.data.crop_frames)[1],
        precision=config.trainer.precision,
        world=world,
    )
    if start is not None:
        start.put_into(trainable.network, trainable.head)
    if not config.trainer.sync_batch_norm:
        return trainable
    return trainable._replace(network=synchronise_batch_norm(trainable.network, world))
