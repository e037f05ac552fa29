"""`svt train --multirun`: a run for every combination of values with commas between them, by one of Hydra's launchers.

    svt train --multirun seed=1,2,3 'exp_dir=exp/r34_${seed}' ...                                one after the other
    svt train --multirun hydra/launcher=submitit_slurm hydra.launcher.gpus_per_node=2 ...        as jobs of SLURM

The launchers of SLURM are those of hydra-submitit-launcher (extra ``slurm``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from svtoolkit import composition
from svtoolkit.commands import train
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.output import DiscreetFormatter, log_to_stdout
from svtoolkit.system.shell_words import join_words

COMMAND = "train"

SWEEP_DIR = "multirun"

NO_FILES_OF_HYDRA = ("hydra.output_subdir=null", "hydra/job_logging=none", f"hydra.sweep.dir={SWEEP_DIR}")
"""A run's own folder has its configuration and its log; what launchers write goes to one place."""

DISCREET = f"+hydra.hydra_logging.formatters.simple.class={DiscreetFormatter.__module__}.{DiscreetFormatter.__name__}"
"""Hydra lists the overrides of each job."""

DOT = "__"
"""Stands for the dot of a key in Hydra's eyes, where optim=adamw and optim.lr=0.1 could not be side by side."""


def run_jobs(overrides: Sequence[str]) -> int:
    """Start a job for every combination; returns 0 once the launcher says that all have ended well.

    Hydra makes the combinations and starts the jobs; each composes its own configuration.

    Args:
        overrides: Hydra's, those of its own (``hydra...=``) among them.

    Raises:
        UserError: an unknown key.
        SystemExit: Hydra has said what it cannot do, such as start a launcher that is not installed.
    """
    of_hydra = [override for override in overrides if override.startswith("hydra")]
    ours = [override for override in overrides if override not in of_hydra]
    catalogue, rest = composition.split(COMMAND, ours)
    composition.refuse_unknown(catalogue, [choice for override in rest for choice in _choices(override, catalogue)])
    import hydra

    start = hydra.main(version_base="1.3", config_path=None, config_name=None)
    words = [f"+{key.replace('.', DOT)}={value}" for key, _, value in (word.partition("=") for word in ours)]
    with patch.object(sys, "argv", [f"svt {COMMAND}", "--multirun", *NO_FILES_OF_HYDRA, DISCREET, *of_hydra, *words]):
        try:
            start(run_job)()
        finally:
            _hide_in(Path(f"{SWEEP_DIR}/multirun.yaml"))
    return 0


def _hide_in(file: Path) -> None:
    """Take the credentials of URLs out of the file in which Hydra keeps what it was asked for."""
    if file.is_file() and (text := file.read_text(encoding="utf-8")) != (shown := hide_credentials(text)):
        with atomic_write(file) as stream:
            stream.write(shown)


def _choices(override: str, catalogue: composition.Catalogue) -> list[str]:
    """Each option that an override of a group chooses in turn; any other override as it is."""
    key, _, value = override.partition("=")
    return [f"{key}={option}" for option in value.split(",")] if key in catalogue.options else [override]


def run_job(node: Any) -> None:
    """One of the runs, wherever the launcher starts it; ends the process where it fails, as the command does.

    Raises:
        SystemExit: with the status of the command, where it is not 0.
    """
    from hydra.core.hydra_config import HydraConfig

    overrides = [_as_typed(word) for word in HydraConfig.get().overrides.task]
    try:
        with patch.object(logging.getLogger(), "handlers", []), log_to_stdout():  # a launcher's would say all twice
            config = composition.load(COMMAND, overrides)
            status = train.run(config, join_words(["svt", COMMAND, *overrides]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    if status:
        raise SystemExit(status)


def _as_typed(word: str) -> str:
    """The override behind one of a job's, in which Hydra has escaped what its grammar could take for something else."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    key, _, text = word.removeprefix("+").partition("=")
    value = OverridesParser.create().parse_override(word).value()
    if isinstance(value, str) and "\\" in text:
        escaped = value.replace("'", "\\'")
        text = f"'{escaped}'"
    return f"{key.replace(DOT, '.')}={text}"
