"""Settings of the loggers that have some; given by `trainer.logger_settings`."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import setting


@dataclass
class WandbConfig:
    """Weights & Biases."""

    project: str | None = setting(None, "null: WANDB_PROJECT of the environment, or svtoolkit")
    entity: str | None = setting(None, "user or team; null: WANDB_ENTITY, or that of the login")
    group: str | None = setting(None, "of runs that belong together; null: WANDB_RUN_GROUP, or none")
    run_name: str | None = setting(None, "null: WANDB_NAME, or the name of exp_dir")
    mode: str | None = setting(None, "online, offline or disabled; null: WANDB_MODE, or online")


@dataclass
class MLflowConfig:
    """MLflow."""

    tracking_uri: str | None = setting(None, "null: MLFLOW_TRACKING_URI, or exp_dir/logs/mlflow.db")
    experiment: str | None = setting(None, "null: MLFLOW_EXPERIMENT_NAME, or svtoolkit")
    run_name: str | None = setting(None, "null: the name of exp_dir")
