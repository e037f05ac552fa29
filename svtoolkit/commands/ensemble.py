"""svt ensemble: several released models as one, whose cosines are the means of theirs."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

from svtoolkit import __version__
from svtoolkit.checkpoints.model_digest import model_digest
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.checkpoints.releases import pinned, read_release
from svtoolkit.config import EnsembleConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.system.atomic import atomic_folder
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)


def run(config: EnsembleConfig, command_line: str) -> int:
    """Write the model, whole or not at all."""
    out = Path(config.out)
    if len(config.models) < 2:
        raise UserError(f"models is {config.models}, expected two released models or more, models=[A,B]")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another folder with out=DIR, or remove it")
    read = [read_release(pinned(model), front_end=config.front_end) for model in config.models]
    descriptions = [description for _, description in read]
    digests = [model_digest(*each) for each in read]
    _check(config.models, descriptions, digests)
    members = [description.model for description in descriptions]
    described = ModelDescription(
        model={
            "name": "ensemble",
            "num_bins": descriptions[0].features.num_bins,
            "embedding_dim": sum(int(network.embedding_dim) for network, _ in read),  # type: ignore[arg-type, misc]
            "members": members,
        },
        features=descriptions[0].features,
        training={
            "svtoolkit": __version__,
            "command": command_line,
            "members": [
                {"model": model, "digest": digest}
                | {key: value for key, value in description.training.items() if key not in {"command", "svtoolkit"}}
                for model, digest, description in zip(config.models, digests, descriptions, strict=True)
            ],
        },
    )
    build_model(**described.model)  # refuses members that cannot be in one
    weights = {
        f"members.{number}.{name}": tensor
        for number, (network, _) in enumerate(read)
        for name, tensor in network.state_dict().items()
    }
    with atomic_folder(out) as folder:
        write_released(folder, weights, described)
    names = ", ".join(str(member["name"]) for member in members)
    log.info("%d networks (%s) -> %s, embeddings of %d", len(read), names, out, described.model["embedding_dim"])
    log.info("its scores are other than those of its members, and so is the threshold")
    say_next("svt", "embed", "--model", str(out), "--data", "EVAL_DIR", "--out", "EMBEDDINGS")
    return 0


def _check(models: list[str], descriptions: list[ModelDescription], digests: list[str]) -> None:
    """Refuse members of other features than the first one's, and the same member twice."""
    first = asdict(descriptions[0].features)
    for place, (model, description) in enumerate(zip(models, descriptions, strict=True)):
        found = asdict(description.features)
        if found != first:
            key = next(key for key in {**first, **found} if first.get(key) != found.get(key))
            raise UserError(
                f"{model}: its features have {key}={found.get(key)!r}, and those of {models[0]} {key}="
                f"{first.get(key)!r}; the members of an ensemble take the same. The scores of other models can be "
                "joined by `svt fuse`"
            )
        if digests[place] in digests[:place]:
            raise UserError(
                f"{model}: is the same model as {models[digests.index(digests[place])]}, and adds nothing to it; "
                "train with seed=43, or another network"
            )
