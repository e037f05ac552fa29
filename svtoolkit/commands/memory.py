"""svt memory: where the memory of a training step goes, how it grows, and what fits."""

from __future__ import annotations

import json
from typing import Any

from svtoolkit.config import MemoryPredictionConfig
from svtoolkit.errors import UserError
from svtoolkit.memory.step_report import KINDS, MemoryReport
from svtoolkit.planning.memory_prediction import StepMemory, count_phases
from svtoolkit.planning.stored_predictions import predict_or_recall
from svtoolkit.system.progress import show_progress

BAR_DELAY = 2.0
"""Seconds before a progress bar is shown."""

ALWAYS_SHOWN = ("weights", "gradients", "optimizer_state", "activations", "transients")
"""Kinds that have a row even where they need nothing."""

MIB, GIB = 2**20, 2**30


def run(config: MemoryPredictionConfig, command_line: str) -> int:
    """Print the table or the data."""
    if config.format not in ("table", "json"):
        raise UserError(f"format is {config.format!r}, expected table or json")
    with show_progress("memory", count_phases(config), "phase", leave=False, delay=BAR_DELAY) as progress:
        memory = predict_or_recall(config, lambda phase: progress.update())
    print(_as_json(config, memory) if config.format == "json" else _as_table(config, memory))
    return 0


def _as_json(config: MemoryPredictionConfig, memory: StepMemory) -> str:
    facts: dict[str, Any] = {
        "model": config.model.name,
        "memory": memory.strategy,
        "loss": config.loss.name,
        "optim": config.optim.name,
        "distillation": config.distillation.model,
        "measured": memory.whole.allocator is not None,
        "frames": config.frames,
        "num_bins": config.num_bins,
        "batch_size": config.batch_size,
        "devices": config.devices,
        "shard": config.loss.shard,
        "precision": config.precision,
        "num_classes": config.num_classes,
        "channels_last": config.channels_last,
        "bytes_per_utterance": memory.bytes_per_utterance,
        "budget_gib": config.budget_gib,
        "largest_batch": memory.largest_batch(config.budget_gib * GIB),
        "step": memory.whole.to_dict(),
        "step_of_one_utterance": None if memory.single is None else memory.single.to_dict(),
    }
    return json.dumps(facts, indent=2)


def _as_table(config: MemoryPredictionConfig, memory: StepMemory) -> str:
    report = memory.whole
    shards = f" in {config.devices} shards" if config.loss.shard else ""
    whose = f" of one of {config.devices} devices" if config.devices > 1 else ""
    how = "predicted" if report.allocator is None else "measured"
    larger = "" if config.distillation.model is None else f", distillation.model={config.distillation.model}"
    lines = [
        f"{config.model.name}, {memory.strategy} activations, {config.precision}, loss={config.loss.name} over "
        f"{config.num_classes} classes{shards}, optim={config.optim.name}{larger}: a step{whose} on "
        f"{config.batch_size} x {config.frames} frames of {config.num_bins} bins, {how}",
        "",
        f"{'MiB':<16} {'at the peak':>12} {'share':>8} {'highest':>12}",
        *(_row(report, kind) for kind in KINDS if kind in ALWAYS_SHOWN or report.highest[kind]),
        f"{'peak':<16} {report.peak_bytes / MIB:>12.1f} {'100.0 %':>8}   in the {_phase(report.peak_phase)}",
        "",
    ]
    if report.allocator is not None:
        lines.append(
            f"CUDA's allocator: {report.allocator.allocated_bytes / MIB:.1f} MiB handed out at its peak, "
            f"{report.allocator.reserved_bytes / MIB:.1f} MiB taken from the GPU"
        )
    return "\n".join([*lines, *_growth(config, memory)])


def _row(report: MemoryReport, kind: str) -> str:
    size = report.at_peak[kind]
    share = f"{100 * size / report.peak_bytes:.1f} %"
    return f"{kind.replace('_', ' '):<16} {size / MIB:>12.1f} {share:>8} {report.highest[kind] / MIB:>12.1f}"


def _growth(config: MemoryPredictionConfig, memory: StepMemory) -> list[str]:
    slope, largest = memory.bytes_per_utterance, memory.largest_batch(config.budget_gib * GIB)
    if slope is None:
        return [
            "what an utterance takes and what batch fits is the difference of two batches: give batch_size=2 or more"
        ]
    fits = f"the largest batch is {largest}" if largest else "not even one utterance fits"
    return [
        f"{slope / GIB:.4f} GiB an utterance; in {config.budget_gib:g} GiB {fits}",
        "not counted: the device's context, cuDNN's workspace, gaps of the allocator, waveforms and filter bank",
    ]


def _phase(phase: str) -> str:
    return "optimizer step" if phase == "optimizer" else f"{phase} pass"
