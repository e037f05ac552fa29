"""The measurements of ``benchmarks.memory`` put together: networks against their peers, the paper and our targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.memory_ledger import GIB
from benchmarks.published import FREE_DEPTH, FREE_DEPTH_TOLERANCE, PUBLISHED, optimizer_of
from benchmarks.step_time import IDEAL, TARGET
from benchmarks.training_step import CHECKPOINT, REVERSIBLE, STORE, is_reversible

UNMEASURED = "unmeasured"

Records = Mapping[str, Mapping[str, Any]]
"""Part -> network -> record."""


def summarise(records: Records) -> dict[str, Any]:
    """Rows of all networks measured, and whether depth is free."""
    measured = {network for part in records.values() for network in part}
    names = [name for name in PUBLISHED if name in measured]
    names += sorted(measured - set(names))
    return {"rows": [_row(name, records) for name in names], "free_depth": _free_depth(records)}


def _row(name: str, records: Records) -> dict[str, Any]:
    published = PUBLISHED.get(name)
    gib = _found(records, "ledger", name, "gib_per_utterance") or {}
    reversible = gib.get(REVERSIBLE)
    peer = published.peer if published else None
    stored_peer = (_found(records, "ledger", peer, "gib_per_utterance") or {}).get(STORE) if peer else None
    target, stricter = (published.target, published.stricter_target) if published else (None, None)
    optimizer = optimizer_of(name)
    batches = _found(records, "largest_batch", name, "largest_batch") or {}
    kept = REVERSIBLE if is_reversible(name) else STORE
    times = _found(records, "step_time", name, "strategies") or {}
    against_stored = times.get(REVERSIBLE) or times.get(CHECKPOINT) or {}
    return {
        "network": name,
        "parameters": _found(records, "ledger", name, "parameters"),
        "peer": peer,
        "published_gb_per_utterance": published.gb if published else None,
        "published_gb_per_utterance_8bit": published.eight_bit_gb if published else None,
        "published_largest_batch": published.batch if published else None,
        "published_largest_batch_8bit": published.eight_bit_batch if published else None,
        "gib_per_utterance": gib or None,
        "times_less_than_peer": _ratio(stored_peer, reversible),
        "published_times_less_than_peer": _published_ratio(name),
        "target_gib": target,
        "target_met": None if target is None or reversible is None else reversible <= target,
        "stricter_target_gib": stricter,
        "stricter_target_met": None if stricter is None or reversible is None else reversible <= stricter,
        "largest_batch": batches.get(f"{kept}, {optimizer}"),
        "largest_batch_8bit": batches.get(f"{kept}, {optimizer}_8bit"),
        "step_time_ratio_fastest": against_stored.get("ratio_fastest"),
        "step_time_ratio_median": against_stored.get("ratio_median"),
        "step_time_ratio_processor": against_stored.get("ratio_processor"),
        "step_time_target_met": against_stored["ratio_fastest"] <= TARGET if REVERSIBLE in times else None,
    }


def _found(records: Records, part: str, name: str, key: str) -> Any:
    return records.get(part, {}).get(name, {}).get(key)


def _ratio(more: float | None, less: float | None) -> float | None:
    return None if more is None or less is None else round(more / less, 2)


def _published_ratio(name: str) -> float | None:
    published = PUBLISHED.get(name)
    return round(PUBLISHED[published.peer].gb / published.gb, 2) if published and published.peer else None


def _free_depth(records: Records) -> dict[str, Any] | None:
    """Spread of the memory of networks that differ in depth alone; None until all are measured."""
    found = [(_found(records, "ledger", name, "gib_per_utterance") or {}).get(REVERSIBLE) for name in FREE_DEPTH]
    values = [value for value in found if value is not None]
    if len(values) < len(FREE_DEPTH):
        return None
    spread = max(values) / min(values) - 1
    return {
        "networks": list(FREE_DEPTH),
        "spread": spread,
        "tolerance": FREE_DEPTH_TOLERANCE,
        "met": spread <= FREE_DEPTH_TOLERANCE,
    }


def format_tables(records: Records, summary: Mapping[str, Any]) -> str:
    """Markdown: memory by network, breakdown, time."""
    rows = summary.get("rows", [])
    tables = [_memory_table(rows), _breakdown_table(records), _time_table(records)]
    depth = summary.get("free_depth")
    if depth:
        words = "free" if depth["met"] else "NOT free"
        tables.append(f"depth is {words}: {', '.join(depth['networks'])} differ by {100 * depth['spread']:.2f} %")
    return "\n\n".join(table for table in tables if table)


def _memory_table(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [row for row in rows if row["gib_per_utterance"] or row["largest_batch"] is not None]
    head = "network|parameters|store|checkpoint|reversible|target|times less (paper)|paper, GB|batch (8-bit)|paper"
    body = []
    for row in shown:
        gib = row["gib_per_utterance"] or {}
        body.append(
            [
                row["network"],
                _number(row["parameters"] and row["parameters"] / 1e6, "{:.2f} M"),
                *(_number(gib.get(strategy), "{:.4f}") for strategy in (STORE, CHECKPOINT, REVERSIBLE)),
                _target(row),
                f"{_number(row['times_less_than_peer'], '{:.1f}')} "
                f"({_number(row['published_times_less_than_peer'], '{:.1f}')})",
                _number(row["published_gb_per_utterance"], "{:.3f}"),
                _with_8bit(row["largest_batch"], row["largest_batch_8bit"]),
                _with_8bit(row["published_largest_batch"], row["published_largest_batch_8bit"]),
            ]
        )
    return _table("GiB per utterance, by the ledger", head, body)


def _target(row: Mapping[str, Any]) -> str:
    if row["target_gib"] is None:
        return "–"
    met = {True: "met", False: "MISSED", None: UNMEASURED}[row["target_met"]]
    return f"{row['target_gib']:.4f} {met}"


def _with_8bit(batch: int | None, eight_bit: int | None) -> str:
    return _number(batch, "{}") if eight_bit is None else f"{_number(batch, '{}')} ({eight_bit})"


def _breakdown_table(records: Records) -> str:
    kinds = ("activations", "transients", "weights", "gradients", "optimizer_state")
    body = []
    for name, record in records.get("breakdown", {}).items():
        for row in record["rows"]:
            peak, at_peak = row["peak_bytes"], row["at_peak"]
            other = peak - sum(at_peak[kind] for kind in kinds)
            shares = [f"{at_peak[kind] / GIB:.3f} ({100 * at_peak[kind] / peak:.1f} %)" for kind in kinds]
            system = f"{name}, {row['strategy']}, {row['optimizer']}, {row['batch']}"
            body.append([system, f"{peak / GIB:.3f}", *shares, f"{other / GIB:.3f}"])
    return _table("GiB at the peak of a whole step", f"step|peak|{'|'.join(kinds)}|other", body)


def _time_table(records: Records) -> str:
    body = []
    for name, record in records.get("step_time", {}).items():
        times = record["strategies"]
        for strategy, timing in times.items():
            if strategy == STORE:
                continue
            verdict = "–"
            if strategy == REVERSIBLE:
                verdict = "met" if timing["ratio_fastest"] <= TARGET else "MISSED"
            body.append(
                [
                    name,
                    f"{times[STORE]['fastest_s']:.3f}",
                    f"{strategy} {timing['fastest_s']:.3f}",
                    f"{timing['ratio_fastest']:.2f}",
                    f"{timing['ratio_median']:.2f}",
                    f"{timing['ratio_processor']:.2f}",
                    verdict,
                ]
            )
    target = f"target {TARGET:.2f} (ideal {IDEAL:.2f})"
    head = f"network|store, s|against it, s|ratio of the fastest|of the medians|of processor time|{target}"
    return _table("time of forward and backward pass on the CPU", head, body)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _table(title: str, head: str, body: Sequence[Sequence[str]]) -> str:
    if not body:
        return ""
    columns = head.split("|")
    lines = [f"{title}:", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in body)])
