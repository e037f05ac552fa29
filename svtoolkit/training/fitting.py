"""The micro-batch that fits into the GPU, found out before the first step instead of in the middle of an epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import torch

from svtoolkit.config import CheckpointConfig, MemoryPredictionConfig, OptimConfig, RecomputeNormConfig, TrainConfig
from svtoolkit.crops.class_tuples import holds_tuples, tuple_size
from svtoolkit.device import autocast, choose_device, half_precision
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.errors import UserError
from svtoolkit.memory import has_blocks, has_invertible_blocks, is_reversible
from svtoolkit.models import build_model
from svtoolkit.optim import OPTIMIZERS, Muon
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.micro_batch import NON_TENSOR_BYTES, step_of
from svtoolkit.planning.unpredictable import UnpredictableError
from svtoolkit.training.step import OptimizerStep

log = logging.getLogger(__name__)

GIB = 2**30

MOMENTS = {torch.optim.SGD: 1, torch.optim.AdamW: 2, Muon: 2}
"""Tensors of the size of the weights that an optimizer's first step adds, at the most; 8-bit state is a quarter and
less."""


def gpu_memory_bytes(device: torch.device) -> int | None:
    """Memory of a GPU; None on the CPU: there is no limit to fit into."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def fit_micro_batch(
    config: TrainConfig, micro_batch: int, num_classes: int, world: World, attempt: Callable[[int], object], limit: int
) -> int:
    """Try a step's forward and backward pass; where memory runs out, try half of the crops, once.

    Args:
        config: of the run; what could be changed in it is what the error says.
        micro_batch: crops in memory at once, as configured.
        num_classes: of the head.
        world: all processes try, and continue with the same number.
        attempt: makes the pass for so many crops; may raise ``torch.OutOfMemoryError``.
        limit: memory of the GPU in bytes.

    Returns:
        the micro-batch that fits; the effective batch does not change with it.

    Raises:
        UserError: not even half fits; names the options that would, with their predicted peaks.
    """
    if _fits(attempt, micro_batch, world):
        return micro_batch
    half = micro_batch // 2
    can_halve = micro_batch % 2 == 0 and holds_tuples(half, tuple_size(config.pairwise))
    if can_halve and _fits(attempt, half, world):
        log.warning(
            "%d crops at once do not fit into the memory of the GPU: continuing with %d, accumulated twice as often; "
            "the effective batch stays (in a new run set trainer.micro_batch=%d)",
            micro_batch, half, half,
        )  # fmt: skip
        return half
    tried = f"neither {micro_batch} nor {half} crops" if can_halve else f"not {micro_batch} crops"
    raise UserError(
        f"{config.model.name}: {tried} of {config.data.crop_frames} frames fit into the {limit / GIB:.1f} GiB of "
        f"the GPU; {_advice(config, micro_batch, num_classes, world, limit)}"
    )


@contextmanager
def explain_oom_at_start(config: TrainConfig) -> Iterator[None]:
    """Explain a GPU that is full before any crop is on it.

    Raises:
        UserError: memory ran out within the block.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{config.model.name}: the memory of the GPU ran out on weights alone, those of the network and of a "
            f"loss={config.loss.name} over all classes (`svt memory` tells how much that is); end other programs on "
            "the GPU, choose a smaller network, or divide the classes among more devices with loss.shard=true"
        ) from error


def oom_error(
    config: TrainConfig, step: int, micro_batch: int, num_classes: int, world: World, limit: int
) -> UserError:
    """The error for memory that runs out in the middle of a run, although it was enough for the trial pass.

    Args:
        step: the last one that was finished; the others as for ``fit_micro_batch``.
    """
    return UserError(
        f"{config.model.name}: the {limit / GIB:.1f} GiB of the GPU ran out after step {step}, with {micro_batch} "
        f"crops of {config.data.crop_frames} frames at once; if another program used the GPU, the same command resumes "
        f"from the newest state; for a new run, {_advice(config, micro_batch, num_classes, world, limit)}"
    )


def _advice(config: TrainConfig, micro_batch: int, num_classes: int, world: World, limit: int) -> str:
    try:
        peaks = suggestions(config, micro_batch, num_classes, world)
    except UnpredictableError as error:
        return f"set a smaller trainer.micro_batch, or take a smaller network; what would fit is not known: {error}"
    fitting = [(words, peak) for words, peak in peaks if peak + NON_TENSOR_BYTES <= limit]
    listed = ", ".join(f"{words} ({peak / GIB:.1f} GiB)" for words, peak in fitting or peaks)
    more = f"`svt plan model={config.model.name}` lists what fits"
    if fitting:
        return f"each of these is predicted to fit: {listed}; {more}"
    return f"no single change is predicted to: {listed}; combine them ({more}), or take a smaller network"


def try_pass(step: OptimizerStep, samples: int, micro_batch: int) -> None:
    """Forward and backward pass of a micro-batch of noise, with room for the optimizer's state; changes nothing.

    Each process tries by itself: nothing is exchanged with others.

    Raises:
        torch.OutOfMemoryError: it does not fit.
    """
    buffers = [buffer.clone() for buffer in step.network.buffers()]
    generator = torch.Generator(step.device).manual_seed(0)
    try:
        waveforms = 0.1 * torch.randn(micro_batch, samples, device=step.device, generator=generator)
        labels = torch.zeros(micro_batch, dtype=torch.int64, device=step.device)
        with torch.no_grad():
            features = step.front_end(waveforms)
            targets = None if step.teacher is None else step.teacher.embed(waveforms, features)
        with autocast(step.device, step.precision):
            embeddings = step.network(features)
        loss = step.head.trial_losses(embeddings, labels).sum()
        if step.teacher is not None and targets is not None:
            loss = loss + step.teacher.distances(embeddings, targets).sum()
        loss.backward()
        del loss
        moments = 0 if step.optimizer.state else MOMENTS.get(type(step.optimizer), 0)
        room = [torch.empty_like(parameter) for parameter in step.parameters for _ in range(moments)]
        del room
    finally:
        for parameter in step.parameters:
            parameter.grad = None
        with torch.no_grad():
            for buffer, before in zip(step.network.buffers(), buffers, strict=True):
                buffer.copy_(before)


def _fits(attempt: Callable[[int], object], micro_batch: int, world: World) -> bool:
    try:
        attempt(micro_batch)
        failed = False
    except torch.OutOfMemoryError:
        failed = True
    if failed and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return world.all_reduce_sum({"failed": float(failed)})["failed"] == 0


def suggestions(config: TrainConfig, micro_batch: int, num_classes: int, world: World = ALONE) -> list[tuple[str, int]]:
    """What could be set to need less memory: words of the command line and the predicted peak in bytes."""
    step = step_of(config, micro_batch, num_classes, world.size)
    half = half_precision(choose_device(config.trainer.device) if world.size == 1 else world.device)
    changes = _changes(step, half, tuple_size(config.pairwise))
    return [(words, predict_memory(changed, growth=False).whole.peak_bytes) for words, changed in changes]


def _changes(step: MemoryPredictionConfig, half: str, tuples_of: int) -> Iterator[tuple[str, MemoryPredictionConfig]]:
    """What makes a step smaller, one thing at a time.

    Args:
        half: precision of 16 bits.
        tuples_of: as of ``divisors``.
    """
    smaller = max(1, step.batch_size // 4)
    if smaller < step.batch_size and holds_tuples(smaller, tuples_of):
        yield f"trainer.micro_batch={smaller}", replace(step, batch_size=smaller)
    with torch.device("meta"):
        network = build_model(num_bins=step.num_bins, **asdict(step.model))
    if has_invertible_blocks(network) and step.memory.strategy in ("store", "reversible"):
        yield "memory=hybrid", replace(step, memory=replace(step.memory, strategy="hybrid"))
    elif is_reversible(network) and step.memory.strategy == "store":
        yield "memory=reversible", replace(step, memory=replace(step.memory, strategy="reversible"))
    if not is_reversible(network) and step.memory.strategy in ("auto", "store"):
        yield "memory=recompute_norm", replace(step, memory=RecomputeNormConfig("recompute_norm"))
        if has_blocks(network):
            yield "memory=checkpoint", replace(step, memory=CheckpointConfig("checkpoint"))
    if step.precision == "fp32":
        yield f"trainer.precision={half}", replace(step, precision=half)
    narrow = _with_8_bits(step.optim)
    if narrow is not None:
        yield f"optim={narrow.name}", replace(step, optim=narrow)


def _with_8_bits(optim: OptimConfig) -> OptimConfig | None:
    """The same optimizer with 8-bit state; None where there is none, or it has it already."""
    name = f"{optim.name}_8bit"
    settings = OPTIMIZERS[name].settings if name in OPTIMIZERS.rows else None
    return None if settings is None else settings(**{**asdict(optim), "name": name})
