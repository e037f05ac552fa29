"""What the ledger predicts for every network on fake tensors: no arithmetic, no GPU."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.published import TABLE_I
from benchmarks.training_step import (
    BINS,
    CHECKPOINT,
    CLASSES,
    FRAMES,
    OPTIMIZERS,
    REVERSIBLE,
    STORE,
    TrainingStep,
    build_network,
    is_reversible,
    strategies_of,
)
from svtoolkit.config import LossConfig, MemoryPredictionConfig, MemoryStrategyConfig, ModelConfig
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.measurement import measure_step
from svtoolkit.memory.step_report import PHASES, MemoryReport
from svtoolkit.planning.memory_prediction import StepMemory, predict_memory

GIB = 2**30

UTTERANCES = 4
"""n of the memory per utterance, (peak at n - peak at 1) / (n - 1)."""

LARGE_BATCH = 64
"""From a single utterance to this one the line is laid that foretells the largest batch."""

BREAKDOWNS = {
    "resnet34": [(STORE, "sgd", 64)],
    "revnet57": [(REVERSIBLE, "sgd", 64), (REVERSIBLE, "sgd_8bit", 64)],
    "df_resnet56": [(STORE, "adamw", 16), (STORE, "adamw", 64)],
    "df_revnet89": [(REVERSIBLE, "adamw", 64), (REVERSIBLE, "adamw_8bit", 64)],
}
"""Table I of the paper and its reversible peers: network -> strategy, optimizer, batch. The paper's DF-ResNet56 has a
batch of 16."""

TIMELINE = ("revnet57",)


def memory_per_utterance(name: str) -> dict[str, Any]:
    """Parameters, and for each strategy GiB per utterance of forward and backward pass of the network alone."""
    with QuickFakeTensorMode():
        parameters = sum(weight.numel() for weight in build_network(name, STORE).parameters())
    per_utterance = {strategy: gib_per_utterance(name, strategy) for strategy in strategies_of(name)}
    return {"parameters": parameters, "gib_per_utterance": per_utterance}


def gib_per_utterance(name: str, strategy: str) -> float:
    peaks = {size: _network_report(name, strategy, size).peak_bytes for size in (1, UTTERANCES)}
    return (peaks[UTTERANCES] - peaks[1]) / (UTTERANCES - 1) / GIB


def _network_report(name: str, strategy: str, batch_size: int) -> MemoryReport:
    with QuickFakeTensorMode():
        network = build_network(name, strategy)
        features = torch.randn(batch_size, FRAMES, BINS)
        return measure_step([network], lambda: network(features).sum(), inputs=[features], warm_up=0)


def largest_batches(name: str, optimizer: str, published_batch: int | None, budget_gib: float) -> dict[str, Any]:
    """The largest batch that the linear model puts into a budget: stored and checkpointed, or reversible, and that
    with 8-bit state, too.

    Args:
        optimizer: sgd or adamw.
        published_batch: of the paper; what the model says of it shows which budget the paper's GPU left for tensors.
        budget_gib: for weights, gradients, optimizer state and activations, head included.
    """
    largest, published_peak = {}, None
    for strategy in (REVERSIBLE,) if is_reversible(name) else (STORE, CHECKPOINT):
        for chosen in (optimizer, f"{optimizer}_8bit") if strategy == REVERSIBLE else (optimizer,):
            memory = step_memory(name, strategy, chosen)
            largest[f"{strategy}, {chosen}"] = memory.largest_batch(budget_gib * GIB)
            if strategy == STORE and published_batch is not None:
                published_peak = memory.peak_of(published_batch) / GIB
    return {"budget_gib": budget_gib, "largest_batch": largest, "stored_gib_at_published_batch": published_peak}


def step_memory(name: str, strategy: str, optimizer: str) -> StepMemory:
    """Whole steps on ``LARGE_BATCH`` utterances and on one."""
    whole, single = (_step_report(name, strategy, optimizer, size) for size in (LARGE_BATCH, 1))
    return StepMemory(batch_size=LARGE_BATCH, strategy=strategy, whole=whole, single=single)


def _step_report(name: str, strategy: str, optimizer: str, batch_size: int) -> MemoryReport:
    with QuickFakeTensorMode():
        step = TrainingStep(name, strategy, batch_size=batch_size, optimizer=optimizer)
        for group in step.optimizer.param_groups:
            if group.get("foreach", False) is None:
                group["foreach"] = True  # what torch chooses on CUDA
        for parameter in step.parameters:  # state as after a first step, at a fraction of its time
            parameter.grad = torch.zeros_like(parameter)
        step.optimizer.step()
        return measure_step(
            [step.network, step.head],
            step.forward,
            inputs=[step.features, step.labels],
            optimizer=step.optimizer,
            update=step.update,
            warm_up=0,
        )


def breakdown(name: str) -> dict[str, Any]:
    """What the peak of a whole training step is made of, as ``svt memory`` predicts it, for ``BREAKDOWNS[name]``."""
    rows = []
    for strategy, optimizer, batch_size in BREAKDOWNS[name]:
        report = predict_memory(_configuration(name, strategy, optimizer, batch_size), growth=False).whole
        rows.append(
            {
                "strategy": strategy,
                "optimizer": optimizer,
                "batch": batch_size,
                "peak_bytes": report.peak_bytes,
                "peak_phase": report.peak_phase,
                "at_peak": report.at_peak,
                "highest": report.highest,
            }
        )
    return {"rows": rows, "published_gb": TABLE_I.get(name)}


def timeline(name: str) -> dict[str, Any]:
    """Live MiB over the phases of a step on ``LARGE_BATCH`` utterances, stored and reversible."""
    curves: dict[str, Any] = {}
    for strategy in (STORE, REVERSIBLE):
        moments = predict_memory(_configuration(name, strategy, "sgd", LARGE_BATCH), growth=False).whole.timeline
        curves[strategy] = {
            phase: [round(sum(moment.bytes.values()) / 2**20) for moment in moments if moment.phase == phase]
            for phase in PHASES
        }
    return {"batch": LARGE_BATCH, "optimizer": "sgd", "live_mib": curves}


def _configuration(name: str, strategy: str, optimizer: str, batch_size: int) -> MemoryPredictionConfig:
    return MemoryPredictionConfig(
        frames=FRAMES,
        batch_size=batch_size,
        num_classes=CLASSES,
        num_bins=BINS,
        device="cpu",
        model=ModelConfig(name),
        memory=MemoryStrategyConfig(strategy),
        loss=LossConfig(),
        optim=OPTIMIZERS[optimizer](),
    )
