"""svt backend: LDA, WCCN or PLDA of the embeddings of training speakers."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace

from svtoolkit.config.backends import BackendConfig
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import write_record
from svtoolkit.scoring.backends.backend_file import write_backend
from svtoolkit.scoring.backends.embedding_model import model_of
from svtoolkit.scoring.backends.registry import BACKENDS
from svtoolkit.scoring.backends.training import train_backend
from svtoolkit.scoring.embedding_file import read_embeddings

log = logging.getLogger(__name__)

FEW_SPEAKERS = 50


FREE_OF_KIND = ("kind", "embeddings", "utt2spk", "out")
"""Keys of the command that are no settings of a kind."""


def run(config: BackendConfig, command_line: str) -> int:
    """Train and write the back end; how goes to <out>.yaml, too."""
    BACKENDS[config.kind]  # refuses one that there is not, before anything is read
    settings = {key: value for key, value in asdict(config).items() if key not in FREE_OF_KIND and value is not None}
    table, utt2spk = read_embeddings(config.embeddings), read_utt2spk(config.utt2spk)
    try:
        trained = train_backend(config.kind, table, utt2spk, settings)
    except UserError as error:
        raise UserError(f"{config.embeddings}: {error}") from error
    backend = replace(trained, facts={**trained.facts, **model_of(config.embeddings)})
    write_backend(config.out, backend)
    write_record(f"{config.out}.yaml", command_line, asdict(config) | dict(backend.facts))
    facts = backend.facts
    if facts["speakers"] < FEW_SPEAKERS:
        log.warning(
            "%d speakers are few to learn from: compare with the cosine on others, as by `svt crossval backends=%s`",
            facts["speakers"], f"[cosine,{config.kind}]",
        )  # fmt: skip
    log.info(
        "%s of %d utterances of %d speakers, %d -> %d dimensions -> %s",
        config.kind, facts["utterances"], facts["speakers"], table.dimension, backend.dimension, config.out,
    )  # fmt: skip
    return 0
