"""svt convert-model: a released model of another toolkit as ours, or one of ours as WeSpeaker's folder."""

from __future__ import annotations

import logging
from pathlib import Path

from svtoolkit.checkpoints.released import write_released
from svtoolkit.checkpoints.releases import pinned, read_release, require_release
from svtoolkit.checkpoints.wespeaker import release as wespeaker
from svtoolkit.config import ConvertModelConfig
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_folder
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)

FORMATS = ("svtoolkit", "wespeaker")


def run(config: ConvertModelConfig, _command_line: str) -> int:
    """Read whatever it is, and write it under a new name, whole or not at all."""
    if config.format not in FORMATS:
        raise UserError(f"format is {config.format!r}, expected {' or '.join(FORMATS)}")
    out = Path(config.out)
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another folder with out=DIR, or remove it")
    model = pinned(config.model)
    release = require_release(model)
    network, description = read_release(model, front_end=config.front_end)
    with atomic_folder(out) as folder:
        if config.format == "wespeaker":
            try:
                wespeaker.write(folder, network.state_dict(), description)
            except UserError as error:
                raise UserError(f"{config.model}: {error}") from error
        else:
            write_released(folder, network.state_dict(), description)
    features = description.features
    log.info(
        "%s of %s: %s, embeddings of %d, features %s of %d bins at %d Hz -> %s",
        release.origin or release.weights, release.kind.name, description.model["name"],
        description.model["embedding_dim"], features.backend, features.num_bins, features.sample_rate, out,
    )  # fmt: skip
    say_next("svt", "embed", "--model", str(out), "--data", "EVAL_DIR", "--out", "EMBEDDINGS")
    return 0
