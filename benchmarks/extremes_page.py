"""The tables of ``benchmarks.extremes`` as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.extremes_steps import SMALLEST_MICRO_BATCH, WATERFALL_BATCH
from svtoolkit.planning.cards import CARDS


def format_page(found: dict[str, list[dict[str, Any]]]) -> str:
    """Markdown of all three."""
    blocks = [
        _table(
            "**The strongest published network** (EER on VoxCeleb1-H) that trains:",
            ("GPU", "network", "EER, %", "quickest way that fits", "micro-batch", "GiB", "times store",
             "store's micro-batch"),
            [_strongest_cells(row) for row in found["strongest"]],
        ),
        _table(
            f"**The deepest network** that trains in micro-batches of {SMALLEST_MICRO_BATCH}:",
            ("GPU", "family", "way", "blocks of stage 3", "layers", "parameters", "times store"),
            [
                (
                    CARDS[row["gpu"]].title, row["family"], row["way"], f"{row['blocks']:,}", f"{row['layers']:,}",
                    f"{row['parameters'] / 1e6:,.0f} M", "none fits" if row["times_stored"] is None
                    else f"{row['times_stored']:.2f}",
                )
                for row in found["deepest"]
            ],
        ),
        _table(
            f"**What each option adds**, MiB at the peak of a step on {WATERFALL_BATCH} crops:",
            ("network", "way", "weights", "gradients", "optimizer state", "activations", "transients", "peak", "saved"),
            [
                (row["network"], row["way"], *(f"{size:,.0f}" for size in row["mib"].values()),
                 f"{row['peak_mib']:,.0f}", f"{row['saved_mib']:,.0f}")
                for row in found["waterfall"]
            ],
        ),
    ]  # fmt: skip
    return "\n\n".join(blocks) + "\n"


def _strongest_cells(row: dict[str, Any]) -> tuple[str, ...]:
    head = (CARDS[row["gpu"]].title, f"`{row['network']}`", f"{row['eer_vox1_h']}")
    if row["way"] is None:
        return (*head, f"none: {row['least_gib']} GiB at least", "", "", "", "")
    return (
        *head,
        row["way"],
        str(row["micro_batch"]),
        f"{row['gib']:.2f}",
        f"{row['times_stored']:.2f}",
        str(row["stored_micro_batch"] or "none fits"),
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join([title, "", *(f"| {' | '.join(line)} |" for line in lines)])
