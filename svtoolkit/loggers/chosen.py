"""Loggers by configuration: what `trainer.loggers` and `trainer.logger_settings` choose."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from svtoolkit.config import TrainConfig, TrainerConfig
from svtoolkit.errors import UserError, without_credentials
from svtoolkit.loggers.all_loggers import Loggers, one_line
from svtoolkit.loggers.registry import LOGGERS
from svtoolkit.loggers.run_logger import FAILED, LoggedRun, RunLogger
from svtoolkit.registry import check_settings, defaults

log = logging.getLogger(__name__)

REMEDIES = {"wandb": "`pip install wandb`", "mlflow": "`pip install mlflow`"}
"""Logger that needs a package of its name, which svtoolkit does not install -> how it is installed."""


def check_loggers(trainer: TrainerConfig) -> None:
    """Refuse what cannot log, before anything is written.

    Raises:
        UserError: an unknown logger, one that is named twice, settings that it has not, or a package that is missing.
    """
    for name in trainer.loggers:
        if trainer.loggers.count(name) > 1:
            raise UserError(f"trainer.loggers names {name} twice; name it once")
        given = _settings(trainer, name)
        row = LOGGERS[name]
        if row.settings is None and given:
            raise UserError(f"trainer.logger_settings: logger {name} has no settings, found {', '.join(given)}")
        if row.settings is not None:
            check_settings(f"trainer.logger_settings: logger {name}", row.settings, given)
        if name in REMEDIES and not _is_installed(name):
            raise UserError(
                f"trainer.loggers: {name} needs the package {name}, which is not installed here; {REMEDIES[name]}, "
                f"or leave {name} out"
            )
    for name in trainer.logger_settings:
        if name not in trainer.loggers:
            chosen = ", ".join([*trainer.loggers, name])
            raise UserError(
                f"trainer.logger_settings has some of {name!r}, which trainer.loggers does not choose; leave them out, "
                f"or choose it too: trainer.loggers=[{chosen}]"
            )


def open_loggers(
    config: TrainConfig, folder: Path, *, resume_step: int, records: Sequence[Mapping[str, Any]]
) -> Loggers:
    """Begin with those that are chosen, or resume them.

    Args:
        folder: of the logs.
        records: of the history up to ``resume_step``.

    Raises:
        UserError: one cannot begin with a new run. A run that is resumed goes on without it.
    """
    shown = without_credentials(asdict(config))
    run = LoggedRun(Path(config.exp_dir).absolute().name, folder, shown, resume_step, records)
    opened: dict[str, RunLogger] = {}
    for name in config.trainer.loggers:
        row = LOGGERS[name]
        settings = {**(defaults(row.settings) if row.settings else {}), **row.arguments}
        try:
            opened[name] = LOGGERS.load(name)(run, **{**settings, **_settings(config.trainer, name)})
        except Exception as error:
            if not resume_step:
                Loggers(opened).close(FAILED)
                raise UserError(
                    f"logger {name} cannot begin ({one_line(error)}); put that right, or leave {name} out of "
                    "trainer.loggers"
                ) from error
            log.warning("logger %s cannot be resumed (%s): it gets no figures of this part", name, one_line(error))
    return Loggers(opened)


def _settings(trainer: TrainerConfig, name: str) -> dict[str, Any]:
    given = trainer.logger_settings.get(name) or {}
    if not isinstance(given, Mapping):
        raise UserError(
            f"trainer.logger_settings: found {given!r} of {name}, expected keys and values, as in "
            "'trainer.logger_settings={wandb:{project:voices}}'"
        )
    return dict(given)


def _is_installed(package: str) -> bool:
    """Whether it can be imported; a folder of its name, such as the one wandb writes to, is no package."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
