"""svt average: the mean of several epochs as a released model."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from svtoolkit import __version__
from svtoolkit.checkpoints.averaging import average_weights
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.config import AverageConfig, FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.reporting.history import read_history
from svtoolkit.training.epoch_weights import choose_epochs, load_epoch_weights, weights_path
from svtoolkit.training.experiment import CHECKPOINTS, CONFIG, LOGS

log = logging.getLogger(__name__)


def run(config: AverageConfig) -> int:
    """Average and release."""
    exp_dir = Path(config.exp_dir)
    saved = exp_dir / CONFIG
    if not saved.is_file():
        raise UserError(f"{saved}: there is no such file; expected exp_dir to be a folder that `svt train` wrote")
    trained: dict[str, Any] = yaml.safe_load(saved.read_text(encoding="utf-8"))
    records = [record for record in read_history(exp_dir / LOGS / "history.jsonl") if record["kind"] == "epoch"]
    checkpoints = exp_dir / CHECKPOINTS
    epochs = choose_epochs(checkpoints, records, choose=config.choose, num=config.num)
    weights = average_weights(load_epoch_weights(weights_path(checkpoints, epoch)) for epoch in epochs)
    features = FeaturesConfig(**{item.name: trained["features"][item.name] for item in fields(FeaturesConfig)})
    description = ModelDescription(
        model={"num_bins": features.num_bins, **trained["model"]},
        features=features,
        training={
            "svtoolkit": __version__,
            "epochs_averaged": epochs,
            "crop_frames": trained["data"]["crop_frames"],
            "loss": trained["loss"]["name"],
            "seed": trained["seed"],
        },
    )
    folder = write_released(config.out or exp_dir / "model", weights, description)
    log.info("averaged epochs %s -> %s", ", ".join(map(str, epochs)), folder)
    return 0
