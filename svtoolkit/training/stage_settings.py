"""Checks of a run in two stages that need no torch."""

from __future__ import annotations

from svtoolkit.config import TrainConfig, TwoStageConfig
from svtoolkit.errors import UserError

CLASS_HEAD = "class_head"
"""In compress.layers: the matrix of the training speakers."""

VARIANCE = 0.9
"""Explained where neither compress.variance nor compress.parameters is given; as in fig. 3 of the paper."""


def transition_of(config: TrainConfig) -> int:
    """Epochs of stage one; all of them where there is no other."""
    compress, epochs = config.compress, config.trainer.epochs
    if not isinstance(compress, TwoStageConfig):
        return epochs
    return max(1, epochs // 2) if compress.transition is None else compress.transition


def check_stages(config: TrainConfig) -> None:
    """Refuse numbers and choices that no run in two stages has.

    Raises:
        UserError: names the key, what was found and what was expected.
    """
    compress, epochs = config.compress, config.trainer.epochs
    if not isinstance(compress, TwoStageConfig):
        return
    if not compress.strength >= 0:
        raise UserError(f"compress.strength is {compress.strength}, expected 0 or more")
    if compress.transition is not None and not 1 <= compress.transition <= epochs:
        raise UserError(
            f"compress.transition is {compress.transition}, expected 1 to trainer.epochs={epochs}; to begin with stage "
            "two, make the model smaller with `svt compress` and train with init_from=DIR"
        )
    if compress.transition is None and epochs < 2:
        raise UserError("trainer.epochs is 1, and two stages need two epochs or more; raise it, or set compress=none")
    if compress.variance is not None and compress.parameters is not None:
        raise UserError("compress.variance and compress.parameters are both given; expected one of them")
    if compress.variance is not None and not 0 < compress.variance <= 1:
        raise UserError(f"compress.variance is {compress.variance}, expected a share above 0, at most 1")
    if compress.parameters is not None and not compress.parameters > 0:
        raise UserError(f"compress.parameters is {compress.parameters}, expected a number above 0")
    if config.model.ranks or config.loss.rank is not None:
        raise UserError(
            f"compress={compress.name} chooses ranks itself, and model.ranks or loss.rank gives some; leave them out, "
            "or set compress=none"
        )
    if config.loss.shard and CLASS_HEAD in compress.layers:
        raise UserError(
            f"compress.layers names {CLASS_HEAD}, which loss.shard=true divides among devices; leave one of both out"
        )
