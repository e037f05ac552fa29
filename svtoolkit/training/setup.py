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
from svtoolkit.losses import AngularPrototypical
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.assembly import Trainable, build_trainable
from svtoolkit.training.initialisation import Start, choose_classes
from svtoolkit.training.two_stages import Stage, factored, new_weights


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


def count_classes(config: TrainConfig, start: Start | None, state: dict[str, Any] | None, classes: int) -> int:
    """Of the head of a run whose data have ``classes``; a state, or a head that is kept, may have more."""
    if state is not None:
        return len(state["head"]["weight"])
    kept = start.num_classes if start is not None and config.init_head == "keep" else None
    return kept or classes


def trainable_with_weights(
    config: TrainConfig,
    training_set: TrainingSet,
    start: Start | None,
    state: dict[str, Any] | None,
    device: torch.device,
    world: World,
    stage: Stage | None = None,
    pairwise: AngularPrototypical | None = None,
) -> Trainable:
    """Network, head and optimizer; the weights are new, or those of ``start``.

    Args:
        state: that is loaded later; it decides about the number of classes.
        stage: of a run in two; its factors begin as those of whole matrices.
        pairwise: a term beside the loss, which the optimizer trains, too.

    Raises:
        UserError: a part that cannot be built, or a start that does not fit it.
    """
    num_classes = None if state is None else len(state["head"]["weight"])
    if start is not None:
        start = choose_classes(start, config, training_set)
        num_classes = start.num_classes
    num_classes = num_classes or training_set.num_classes
    if stage is not None and state is None:
        start = factored(start or new_weights(config, num_classes), config)
    trainable = build_trainable(
        config.model,
        config.memory,
        config.loss,
        config.optim,
        num_bins=config.features.num_bins,
        num_classes=num_classes,
        device=device,
        channels_last=config.trainer.channels_last,
        frames=front_end_of(config.features).crop_size(config.data.crop_frames)[1],
        precision=config.trainer.precision,
        world=world,
        pairwise=pairwise,
        **({} if stage is None else {"undecayed": stage.undecayed}),
    )
    if start is not None:
        start.put_into(trainable.network, trainable.head)
    if not config.trainer.sync_batch_norm:
        return trainable
    return trainable._replace(network=synchronise_batch_norm(trainable.network, world))
