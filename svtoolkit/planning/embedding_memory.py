"""How much audio goes through a network at once when it embeds, by the memory that there is."""

from __future__ import annotations

import logging
import math

import torch

from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.errors import UserError
from svtoolkit.planning.stored_predictions import predict_or_recall_pass
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.forward import LEAST_SECONDS
from svtoolkit.scoring.pass_memory import in_all, show_bytes
from svtoolkit.system.free_memory import free_memory

log = logging.getLogger(__name__)

SHARE = 0.75
"""Of the memory that is free, without a budget: other programs go on."""


def fit_extractor(extractor: EmbeddingExtractor, description: ModelDescription, memory_gib: float | None) -> None:
    """Lower what goes through the network at once to what is predicted to fit.

    Args:
        description: of the network of ``extractor``.
        memory_gib: budget of a pass, weights included; None: ``SHARE`` of what is free, rounded down to a power of two,
            so that a run that is resumed finds the same.

    Raises:
        UserError: an impossible budget, one that holds no second of audio, or one of a network that takes no fake
            tensors; without a budget, ``batch_seconds`` alone limits such a one.
    """
    if memory_gib is not None and not 0 < memory_gib < math.inf:
        raise UserError(f"memory_gib is {memory_gib:g}, expected a number of GiB above 0, or null")
    free = free_bytes(extractor.device) if memory_gib is None else None
    if memory_gib is None and free is None:
        return
    try:
        memory = predict_or_recall_pass(description, extractor.precision)
    except Exception as error:  # of any kind: the networks are of other packages, and ONNX graphs, too
        if memory_gib is None:
            log.debug("the memory of a pass cannot be predicted: %s: %s", type(error).__name__, error)
            return
        raise UserError(
            f"memory_gib is {memory_gib:g}, but the memory of network {description.model.get('name')!r} cannot be "
            f"predicted ({type(error).__name__}: {error}); leave memory_gib out, and lower batch_seconds instead"
        ) from error
    if memory_gib is not None:
        budget = memory_gib * 2**30
    else:
        room = 2.0 ** math.floor(math.log2(max(1.0, SHARE * (free or 0))))
        budget = max(room + memory.held, in_all(2 * memory.of(LEAST_SECONDS)))  # the weights are there already
    before = extractor.batch_seconds
    extractor.fit_into(budget, memory)
    if extractor.batch_seconds < before:
        log.info(
            "batches of %.1f s of audio at most, predicted to take %s of memory (%s may be used)",
            extractor.batch_seconds, show_bytes(in_all(memory.of(extractor.batch_seconds))), show_bytes(budget),
        )  # fmt: skip


def free_bytes(device: torch.device) -> int | None:
    """Of a GPU, or of the machine; None: unknown."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
