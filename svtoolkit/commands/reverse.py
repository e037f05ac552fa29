"""svt reverse: a trained ResNet as the reversible network of the same weights, and what memory that saves."""

from __future__ import annotations

import logging
from pathlib import Path

from svtoolkit.checkpoints.released import write_released
from svtoolkit.checkpoints.releases import pinned, read_release
from svtoolkit.checkpoints.reversal import reverse
from svtoolkit.config import ReverseConfig
from svtoolkit.errors import UserError
from svtoolkit.planning.model_survey import growth_of
from svtoolkit.system.atomic import atomic_folder
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)


def run(config: ReverseConfig, _command_line: str) -> int:
    """Convert, predict the memory of both, and write the model, whole or not at all."""
    out = Path(config.out)
    if config.frames < 1:
        raise UserError(f"frames is {config.frames}, expected 1 or more")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another folder with out=DIR, or remove it")
    model = pinned(config.model)
    network, description = read_release(model, front_end=config.front_end)
    try:
        turned, described = reverse(network, description, config.remainder_bits)
    except UserError as error:
        raise UserError(f"{config.model}: {error}") from error
    stored = growth_of(description.model, "store", frames=config.frames)
    needed = growth_of(described.model, "reversible", frames=config.frames)
    with atomic_folder(out) as folder:
        write_released(folder, turned.state_dict(), described)
    log.info("%s -> %s of %s, the same weights", config.model, out, described.model["name"])
    log.info(
        "activations of an utterance of %d frames, float32: %.4f GiB stored, %.4f reversed, %.1f times less",
        config.frames, stored / 2**30, needed / 2**30, stored / needed,
    )  # fmt: skip
    log.info("EPOCHS: about a tenth of those that it was trained for; docs/reversible.md has what they bring")
    say_next(
        "svt", "train", "--init-from", str(out), "--data.train", "TRAIN_DIR", "--exp-dir", "EXP_DIR",
        "--memory", "reversible", "--optim.lr", "0.01", "--trainer.epochs", "EPOCHS",
    )  # fmt: skip
    return 0
