"""Training of a back end of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from svtoolkit.config.backends import WhiteningConfig
from svtoolkit.errors import UserError
from svtoolkit.registry import check_settings
from svtoolkit.scoring.backends.backend import Backend, Trained
from svtoolkit.scoring.backends.covariance import whitening
from svtoolkit.scoring.backends.registry import BACKENDS
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.scoring.backends.training_data import LabelledEmbeddings
from svtoolkit.scoring.cosine import EmbeddingTable


def train_backend(
    kind: str, table: EmbeddingTable, utt2spk: Mapping[str, str], settings: Mapping[str, Any] | None = None
) -> Backend:
    """Centre, whiten if asked for, normalise the length, then what the kind does; float64, the same bytes each time.

    Args:
        kind: of the registry.
        table: embeddings of the training speakers.
        utt2spk: the utterances to train on, and their speakers.
        settings: of the kind, those that are not its defaults.

    Raises:
        UserError: no such kind or setting, too few speakers, utterances without an embedding; what the kind refuses.
    """
    row = BACKENDS[kind]
    check_settings(f"back end {kind}", row.settings, settings or {})  # type: ignore[arg-type]  # ours all have some
    chosen: WhiteningConfig = row.settings(**(settings or {}))  # type: ignore[misc]
    if chosen.shrinkage is not None and not 0 <= chosen.shrinkage < 1:
        raise UserError(f"shrinkage is {chosen.shrinkage:g}, expected 0 or more and less than 1, or null")
    try:
        with threadpool_limits(1):
            training = LabelledEmbeddings.of(table, utt2spk)
            first = _first_stage(training, chosen.whiten, chosen.shrinkage)
            trained: Trained = BACKENDS.load(kind)(training.after(first), chosen)
    except np.linalg.LinAlgError as error:
        raise UserError(
            f"the covariance of {len(utt2spk)} embeddings of {table.dimension} dimensions has no inverse; give more "
            f"utterances whose embeddings differ, or shrinkage above {chosen.shrinkage or 0:g}"
        ) from error
    facts = asdict(chosen) | trained.facts
    facts |= {"speakers": int(training.speakers[-1]) + 1, "utterances": len(training.rows)}
    return Backend(kind, (first, *trained.stages), trained.between, facts)


def _first_stage(training: LabelledEmbeddings, whiten: bool, shrinkage: float | None) -> Stage:
    statistics = training.pooled().statistics()
    total = statistics.within(shrinkage)[0] if whiten else None
    matrix = np.eye(len(statistics.mean)) if total is None else whitening(total)
    return Stage(statistics.mean, matrix, unit=True)
