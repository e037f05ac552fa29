"""Whether a back end and embeddings are of one network, by what `svt embed` wrote beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import read_record
from svtoolkit.scoring.backends.backend import Backend
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.embedding_file import read_embeddings


def model_of(scp: str | Path) -> dict[str, Any]:
    """``model`` and ``model_sha256`` of embeddings; None where no record tells."""
    record = read_record(Path(scp).with_suffix(".yaml"))
    return {key: record.get(key) for key in ("model", "model_sha256")}


def read_applied(scp: str | Path, backend: Backend | None, path: str | Path | None) -> EmbeddingTable:
    """Embeddings, gone through a back end where there is one.

    Args:
        path: of the back end, for messages.

    Raises:
        UserError: as :func:`~svtoolkit.scoring.embedding_file.read_embeddings`; embeddings of another network than
            those that the back end was trained on.
    """
    if backend is None:
        return read_embeddings(scp)
    found, wanted = model_of(scp), backend.facts
    digests = found["model_sha256"], wanted.get("model_sha256")
    if None not in digests and digests[0] != digests[1]:
        raise UserError(
            f"{scp}: embeddings of {found['model']}, but the back end {path} was trained on those of "
            f"{wanted.get('model')}, another network; embed both with one model, or train a back end for these"
        )
    table = read_embeddings(scp)
    try:
        return backend.apply(table)
    except UserError as error:
        raise UserError(f"{scp}, back end {path}: {error}") from error
