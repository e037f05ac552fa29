"""svt models: the networks of the registry with their sizes, multiply-accumulates and memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from svtoolkit.config import ModelsConfig
from svtoolkit.errors import UserError
from svtoolkit.planning.network_facts import NetworkFacts, family_of, match_names, stored_facts
from svtoolkit.system.progress import Progress, show_progress

COLUMNS = ("family", "layers", "params/M", "GMAC", "pooled", "embedding", "memory", "GiB/utt")
ROW = "{:<{width}}  {:<{family}}  {:>6}  {:>8}  {:>6}  {:>6}  {:>9}  {:<10}  {:>7}"


def run(config: ModelsConfig, command_line: str) -> int:
    """Print a row per network as soon as it is known, or all as JSON."""
    if config.format not in ("table", "json"):
        raise UserError(f"format is {config.format!r}, expected table or json")
    names = match_names(config.names)
    networks = find_facts(names, frames=config.frames, num_bins=config.num_bins)
    with show_progress("models", len(names), "network", leave=False) as progress:
        if config.format == "table":
            _print_table(networks, names, progress)
            progress.write(_legend(config))
        else:
            listed = []
            for facts in networks:
                listed.append(asdict(facts))
                progress.update()
            print(json.dumps({"frames": config.frames, "num_bins": config.num_bins, "networks": listed}, indent=2))
    return 0


def find_facts(names: Sequence[str], *, frames: int, num_bins: int) -> Iterator[NetworkFacts]:
    """Facts in the order of the names: stored ones at once, the others as they are found.

    Raises:
        UserError: as ``survey_networks``.
    """
    known = stored_facts(frames, num_bins)
    unknown = [name for name in names if name not in known]
    found: Iterator[NetworkFacts] = iter(())
    if unknown:
        from svtoolkit.planning.model_survey import survey_networks  # imports torch

        found = survey_networks(unknown, frames=frames, num_bins=num_bins)
    for name in names:
        yield known[name] if name in known else next(found)


def _print_table(networks: Iterable[NetworkFacts], names: Sequence[str], progress: Progress) -> None:
    row = partial(ROW.format, width=max(map(len, names)), family=max(9, *(len(family_of(name)) for name in names)))
    progress.write(row("network", *COLUMNS))
    for facts in networks:
        line = row(
            facts.name,
            facts.family,
            "-" if facts.layers is None else facts.layers,
            f"{facts.parameters / 1e6:.2f}",
            f"{facts.macs / 1e9:.2f}",
            "-" if facts.pooled_dim is None else facts.pooled_dim,
            facts.embedding_dim,
            facts.strategy,
            f"{facts.bytes_per_utterance / 2**30:.4f}",
        )
        progress.write(line)
        progress.update()


def _legend(config: ModelsConfig) -> str:
    return (
        f"GMAC and GiB of an utterance of {config.frames} frames and {config.num_bins} bins; GiB: one more in a large "
        "batch, float32 training step of the network alone, `svt train memory=auto`; `svt memory` has the rest"
    )
