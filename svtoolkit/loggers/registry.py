"""Loggers by name; listed without importing any of them."""

from __future__ import annotations

from svtoolkit.config import MLflowConfig, WandbConfig
from svtoolkit.registry import Registry, Row

LOGGERS = Registry(
    "logger",
    "svtoolkit.loggers",
    {
        "tensorboard": Row("svtoolkit.loggers.tensorboard:TensorBoardLogger", help="curves in logs/tensorboard"),
        "csv": Row("svtoolkit.loggers.csv_tables:CSVLogger", help="logs/steps.csv and logs/epochs.csv"),
        "wandb": Row("svtoolkit.loggers.wandb:WandbLogger", WandbConfig, help="Weights & Biases"),
        "mlflow": Row("svtoolkit.loggers.mlflow:MLflowLogger", MLflowConfig, help="MLflow"),
    },
)
"""Name -> what is told the figures. A target takes a ``LoggedRun`` by position and the fields of its settings by
keyword, and returns a ``RunLogger``."""
