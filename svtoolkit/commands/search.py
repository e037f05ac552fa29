"""svt search: the nearest of many embeddings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from svtoolkit.config import SearchConfig
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.embedding_file import embedding_parts, read_embeddings, require_scp
from svtoolkit.scoring.search import PART, FaissIndex, Neighbours, nearest, recall
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)

TESTED = 200
"""Queries that are searched exactly as well, to tell the recall of an index."""


def run(config: SearchConfig, command_line: str) -> int:
    """Search and write `query neighbour cosine`; how it was done goes to <out>.yaml."""
    for key in ("n", "probes"):
        if getattr(config, key) < 1:
            raise UserError(f"{key} is {getattr(config, key)}, expected 1 or more")
    if config.index not in ("exact", "faiss"):
        raise UserError(f"index is {config.index!r}, expected exact or faiss")
    queries = read_embeddings(config.embeddings)
    size = _count_lines(config.among)

    def search(
        title: str, work: Callable[[Iterator[EmbeddingTable], Callable[[int], object]], Neighbours]
    ) -> Neighbours:
        with show_progress(title, size, "emb") as progress:
            return work(embedding_parts(config.among, PART), progress.update)

    facts: dict[str, float | int] = {"queries": len(queries), "looked_through": size}
    if config.index == "exact":
        found = search("search", lambda parts, update: nearest(queries, parts, config.n, update))
    else:
        found = search(
            "index",
            lambda parts, update: FaissIndex(parts, size, config.probes, update).nearest(queries, config.n),
        )
        rows = np.linspace(0, len(queries) - 1, min(TESTED, len(queries))).astype(int)
        some = EmbeddingTable([queries.utterances[row] for row in rows], queries.matrix[rows])
        exact = search("recall", lambda parts, update: nearest(some, parts, config.n, update))
        ours = Neighbours([found.names[row] for row in rows], [found.cosines[row] for row in rows])
        facts |= {"recall": recall(ours, exact), "recall_of_queries": len(rows)}
    with atomic_write(config.out) as stream:
        for query, names, cosines in zip(queries.utterances, *found, strict=True):
            stream.writelines(f"{query} {name} {cosine:.6f}\n" for name, cosine in zip(names, cosines, strict=True))
    write_record(f"{config.out}.yaml", command_line, asdict(config) | facts)
    log.info("the %d nearest of %d among %d (%s) -> %s", config.n, len(queries), size, config.index, config.out)
    if "recall" in facts:
        log.info(
            "recall %.3f: share of the true neighbours that was found, for %d of the queries; more probes find more",
            facts["recall"], facts["recall_of_queries"],
        )  # fmt: skip
    return 0


def _count_lines(scp: str) -> int:
    require_scp(scp)
    with Path(scp).open("rb") as stream:
        return sum(1 for _ in stream)
