"""What the files of the parts allow to decide: one line a default, "unmeasured" where nothing was."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.records import ERROR, LEFT_OUT, TOO_LARGE, read_document
from benchmarks.memory_ledger import GIB

UNMEASURED = "unmeasured"
Records = Mapping[str, Mapping[str, Any]]
"""Key of an item -> its figures, those without figures left out."""

WORTH_IT = 1.1
"""Times as fast that a default is changed for."""

NETWORK_OF = {"store": "resnet34", "reversible": "revnet57"}
"""The network that stands for a strategy."""


def format_summary(folder: Path) -> str:
    """Markdown: where it was measured, the table of decisions, what failed; what a CPU tried counts for nothing."""
    documents = {name: read_document(folder / f"{name}.json") for name in PARTS}
    documents = {
        name: found if found and found["machine"]["device"] != "cpu" else {} for name, found in documents.items()
    }
    found = {name: _figures(document) for name, document in documents.items()}
    devices = sorted({document["machine"]["device"] for document in documents.values() if document})
    lines = [f"measured on: {', '.join(devices) or UNMEASURED}", "", "| decision | now | measured |", "|---|---|---|"]
    for question, now, answer in DECISIONS:
        lines.append(f"| {question} | {now} | {answer(found) or UNMEASURED} |")
    for name, document in documents.items():
        for key, record in document.get("records", {}).items():
            if ERROR in record:
                lines.append(f"\n{name}: {key} failed: {record[ERROR].strip().splitlines()[-1]}")
    return "\n".join(lines)


def _figures(document: Mapping[str, Any]) -> dict[str, Any]:
    records = document.get("records", {})
    return {key: record for key, record in records.items() if not {ERROR, LEFT_OUT, TOO_LARGE} & record.keys()}


Found = Mapping[str, Records]


def faster_precision(found: Found) -> str:
    """Times as many crops a second as in float32, under the trainer's other defaults: fp16 where it is worth it."""
    return _decide(
        found,
        [
            (f"{precision} {strategy}", _step(strategy, "fp32"), _step(strategy, precision))
            for precision in ("fp16", "bf16")
            for strategy in NETWORK_OF
        ],
        lambda ratios: "fp16" if min([r for name, r in ratios.items() if "fp16" in name] or [0]) > WORTH_IT else "fp32",
    )


def channels_last(found: Found) -> str:
    """Times as fast as contiguous."""
    return _decide(
        found,
        [
            (f"{precision} {strategy}", _step(strategy, precision, last=False), _step(strategy, precision))
            for precision in ("fp32", "fp16")
            for strategy in NETWORK_OF
        ],
        lambda ratios: str(statistics.mean(ratios.values()) >= 1).lower(),
    )


def benchmarking(found: Found) -> str:
    """Times as fast as deterministic, and whether exact arithmetic is still exact."""
    exact = equality(found, _is_benchmarked)
    rows = [row for row in _equality_rows(found) if _is_benchmarked(row)]
    is_exact = bool(rows) and all(row["equal"] for row in rows)

    def decide(ratios: Mapping[str, float]) -> str:
        return str(not (is_exact and statistics.mean(ratios.values()) > WORTH_IT)).lower()

    wanted = [
        (f"{precision} {strategy}", _step(strategy, precision), _step(strategy, precision, free=True))
        for precision in ("fp32", "fp16")
        for strategy in NETWORK_OF
    ]
    return _decide(found, wanted, decide, exact)


def _is_benchmarked(row: Mapping[str, Any]) -> bool:
    """As trainer.deterministic=false has it."""
    return bool(row["benchmark"] and not row["deterministic"])


def exactness(found: Found) -> str:
    """Equal gradients with deterministic kernels."""
    return equality(found, lambda row: row["deterministic"] and not row["benchmark"])


def tf32(found: Found) -> str:
    """Equal gradients with TF32 and deterministic kernels."""
    return equality(found, lambda row: row["tf32"] and row["deterministic"] and not row["benchmark"])


def equality(found: Found, is_meant: Callable[[Mapping[str, Any]], bool]) -> str:
    """By precision: settings of memory=reversible whose gradients are the stored ones, of those that could be."""
    counts = []
    for precision in ("fp32", "fp16", "bf16"):
        rows = [row for row in _equality_rows(found, precision) if is_meant(row)]
        if rows:
            repeats = sum(row["stored_repeats_itself"] for row in rows)
            counts.append(
                f"{precision} exact in {sum(row['equal'] for row in rows)} of {len(rows)} settings "
                f"(stored repeats itself in {repeats})"
            )
    return "; ".join(counts)


def _equality_rows(found: Found, precision: str = "") -> list[Mapping[str, Any]]:
    return [
        row
        for key, record in found["equality"].items()
        if ", reversible, " in key and key.endswith(precision)
        for row in record["rows"]
    ]


def strategy_costs(found: Found) -> str:
    """Time of a step in times that of store, by network and strategy, in float32."""
    parts = []
    steps = found["steps"]
    for key, record in steps.items():
        network, strategy, precision, layout, mode = key.split(", ")
        base = steps.get(", ".join((network, "store", precision, layout, mode)))
        is_default = (precision, layout, mode) == ("fp32", "channels_last", "deterministic")
        if base and is_default and strategy != "store":
            parts.append(f"{network} {strategy} {record['median_s'] / base['median_s']:.2f}")
    return ", ".join(parts)


def eight_bit(found: Found) -> str:
    """Times the 32-bit step, of each that was timed."""
    records = found["optimizers"]
    parts = []
    for key, record in records.items():
        optimizer, variant, layout = key.split(", ")[0], ", ".join(key.split(", ")[1:-1]), key.split(", ")[-1]
        base = records.get(f"{optimizer}, 32 bits, {layout}")
        if base and layout == "channels_last" and variant != "32 bits":
            parts.append(f"{optimizer} by {variant}: {record['median_s'] / base['median_s']:.1f}")
    return ", ".join(parts)


def ledger(found: Found) -> str:
    """Peak of the allocator in times the predicted one: least, median, most."""
    values = [record["times_predicted"] for record in found["memory"].values() if record.get("times_predicted")]
    if not values:
        return ""
    return f"{min(values):.3f}, {statistics.median(values):.3f}, {max(values):.3f} of {len(values)} steps"


def beside_tensors(found: Found) -> str:
    """What the GPU had in use beside what the allocator had handed out, at most, in GiB."""
    values = [
        record["outside_bytes"] + record["reserved_bytes"] - record["allocated_bytes"]
        for record in found["memory"].values()
        if record.get("outside_bytes") and record.get("allocated_bytes")
    ]
    return f"{max(values) / GIB:.2f} GiB at most, median {statistics.median(values) / GIB:.2f}" if values else ""


def batches(found: Found) -> str:
    """Measured and predicted, by step and cap."""
    return "; ".join(
        f"{key}: {record['largest_batch']} (predicted {record['predicted']})"
        for key, record in found["batches"].items()
    )


def rate(found: Found) -> str:
    """FLOP/s of convolutions of 32 and of 128 channels."""
    return ", ".join(
        f"{key.removeprefix('convolution of ')}: {record['flops_per_second'] / 1e12:.1f}"
        for key, record in found["machine"].items()
        if key.startswith("convolution")
    )


def intensity(found: Found) -> str:
    """FLOP/s over bytes/s of the bus: what `memory.intensity` would be to move only what travels for free."""
    records = found["machine"]
    bus = [records[key]["bytes_per_second"] for key in records if key.endswith("the device, pinned")]
    flops = records.get("convolution of 32 channels, fp32")
    return f"{flops['flops_per_second'] / min(bus):.0f}" if bus and flops else ""


def races(found: Found) -> str:
    """Steps with the right gradients."""
    records = found["offload"].values()
    steps = sum(record["steps"] for record in records)
    return f"{sum(record['right'] for record in records)} of {steps} steps right" if steps else ""


def loading(found: Found) -> str:
    """Crops a second at best, augmented on the device and in the workers."""
    parts = []
    for where in ("on the device", "in the workers"):
        values = [record["crops_per_second"] for key, record in found["loader"].items() if key.endswith(where)]
        if values:
            parts.append(f"{where} {max(values):.0f}")
    return ", ".join(parts)


def extraction(found: Found) -> str:
    """Seconds of audio a second, of each network at its best."""
    best: dict[str, tuple[float, str]] = {}
    for key, record in found["extraction"].items():
        network, rest = key.split(", ", 1)
        best[network] = max(best.get(network, (0.0, "")), (record["audio_seconds_per_second"], rest))
    return "; ".join(f"{network} {speed:.0f} ({rest})" for network, (speed, rest) in best.items())


def replicas(found: Found) -> str:
    """Step of two GPUs in times that of one, on as many crops each."""
    records = found["replicas"].items()
    return ", ".join(f"{key}: {record['times_alone']:.2f}" for key, record in records if "times_alone" in record)


def _step(strategy: str, precision: str, *, last: bool = True, free: bool = False) -> str:
    layout = "channels_last" if last else "contiguous"
    return ", ".join((NETWORK_OF[strategy], strategy, precision, layout, "free" if free else "deterministic"))


def _decide(
    found: Found,
    wanted: Iterable[tuple[str, str, str]],
    decide: Callable[[Mapping[str, float]], str],
    beside: str = "",
) -> str:
    """How many times as fast one item of the part steps is as another, and what follows.

    Args:
        wanted: name, slower and faster item.
        decide: names and ratios of those that were measured -> the value to take.
        beside: what else is known.
    """
    steps = found["steps"]
    ratios = {
        name: steps[slower]["median_s"] / steps[faster]["median_s"]
        for name, slower, faster in wanted
        if slower in steps and faster in steps
    }
    if not ratios:
        return beside
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return f"{'; '.join(filter(None, [shown, beside]))} → {decide(ratios)}"


DECISIONS: tuple[tuple[str, str, Callable[[Found], str]], ...] = (
    ("trainer.precision: times as fast as fp32", "fp32", faster_precision),
    ("trainer.channels_last: times as fast as without", "true", channels_last),
    ("trainer.deterministic=false: times as fast; exact", "true", benchmarking),
    ("exact arithmetic under deterministic kernels", "true", exactness),
    ("exact arithmetic with TF32", "as torch has it", tf32),
    ("memory: step time in times that of store", "auto", strategy_costs),
    ("optim.backend: 8-bit step in times that of 32 bits", "auto", eight_bit),
    ("ledger: allocator's peak in times the predicted (least, median, most)", "1", ledger),
    ("planning.NON_TENSOR_BYTES", "1 GiB", beside_tensors),
    ("largest batch under a cap", "predicted", batches),
    ("planning.GPU_RATE, TFLOP/s of convolutions", "7", rate),
    ("memory.intensity for free transfers", "0", intensity),
    ("memory=offload on real streams", "not measured", races),
    ("augmentation: crops a second", "in the workers", loading),
    ("extraction: seconds of audio a second", "", extraction),
    ("two GPUs: step in times that of one", "", replicas),
)
"""What is decided, what holds now, and what the figures say."""
