"""svt average: the mean of several epochs, or the moving average of a run, as a released model."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from svtoolkit import __version__
from svtoolkit.checkpoints.averaging import average_weights
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.compression.factors import ranks_of
from svtoolkit.config import AverageConfig, FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import FRONT_ENDS
from svtoolkit.optim.weight_average import averaged_model
from svtoolkit.runs.epoch_weights import choose_epochs, load_epoch_weights, weights_path
from svtoolkit.runs.exp_dir import CHECKPOINTS, CONFIG, LOGS
from svtoolkit.runs.full_state import load_latest_state
from svtoolkit.runs.provenance import read_record
from svtoolkit.runs.run_history import read_history
from svtoolkit.system.output import say_next
from svtoolkit.system.regular_file import is_regular
from svtoolkit.training.run_state import EMA, check_state

log = logging.getLogger(__name__)

CHOICES = ("last", "best", EMA)
"""Of weights to release: of epochs, or the moving average of the newest state."""


def run(config: AverageConfig, command_line: str) -> int:
    """Average and release."""
    exp_dir = Path(config.exp_dir)
    saved = exp_dir / CONFIG
    if not is_regular(saved):
        raise UserError(f"{saved}: there is no such file; expected exp_dir to be a folder that `svt train` wrote")
    weights, origin, told = _moving_average(exp_dir) if config.choose == EMA else _mean_of_epochs(config, exp_dir)
    try:
        description = _describe(read_record(saved), origin, ranks_of(weights), command_line)
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{saved}: lacks {error}, expected the configuration that `svt train` of svtoolkit {__version__} writes"
        ) from error
    folder = write_released(config.out or exp_dir / "model", weights, description)
    log.info("%s -> %s", told, folder)
    say_next(
        "svt", "embed", "--model", str(folder), "--data", "EVAL_DIR", "--out", str(exp_dir / "embeddings" / "eval")
    )
    return 0


def _mean_of_epochs(config: AverageConfig, exp_dir: Path) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """Weights, what the description says of their origin, and what the log says."""
    records = [record for record in read_history(exp_dir / LOGS / "history.jsonl") if record["kind"] == "epoch"]
    checkpoints = exp_dir / CHECKPOINTS
    epochs = choose_epochs(checkpoints, records, choose=config.choose, num=config.num)
    weights = average_weights(load_epoch_weights(weights_path(checkpoints, epoch)) for epoch in epochs)
    fewer = f" (all that are kept; num is {config.num})" if len(epochs) < config.num else ""
    return weights, {"epochs_averaged": epochs}, f"averaged epochs {', '.join(map(str, epochs))}{fewer}"


def _moving_average(exp_dir: Path) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """The same of the moving average in the newest state.

    Raises:
        UserError: there is none.
    """
    found = load_latest_state(exp_dir / CHECKPOINTS, check_state)
    if found is None or EMA not in found[1]:
        what = "there is no state of the run" if found is None else f"the state after step {found[0]} has none"
        raise UserError(
            f"{exp_dir / CHECKPOINTS}: choose=ema asks for a moving average, and {what}; train with trainer.ema=0.999, "
            "or choose=last"
        )
    step, state = found
    average = state[EMA]
    weights = averaged_model(state["network"], average["weights"])
    return weights, {"ema_of_step": step}, f"the moving average after step {step}"


def _describe(
    trained: dict[str, Any], origin: dict[str, Any], ranks: dict[str, int], command_line: str
) -> ModelDescription:
    """What a released model says of itself, from the configuration it was trained with."""
    settings = FRONT_ENDS[trained["features"]["backend"]].settings or FeaturesConfig
    features = settings(**{item.name: trained["features"][item.name] for item in fields(settings)})
    model = {key: value for key, value in trained["model"].items() if key != "ranks"}
    return ModelDescription(
        model={"num_bins": features.num_bins, **model, **({"ranks": ranks} if ranks else {})},
        features=features,
        training={
            "svtoolkit": __version__,
            "command": command_line,
            **origin,
            "data": trained["data"]["train"],
            "crop_frames": trained["data"]["crop_frames"],
            "loss": trained["loss"]["name"],
            "seed": trained["seed"],
        },
    )
