"""`svt train --multirun`: a run for every combination of values with commas between them, by one of Hydra's launchers.

    svt train --multirun seed=1,2,3 'exp_dir=exp/r34_${seed}' ...                                one after the other
    svt train --multirun hydra/launcher=submitit_slurm hydra.launcher.gpus_per_node=2 ...        as jobs of SLURM

The launchers of SLURM are those of hydra-submitit-launcher (extra ``slurm``).
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from svtoolkit import composition
from svtoolkit.commands import train
from svtoolkit.composition.mistakes import refuse_unknown
from svtoolkit.errors import UserError
from svtoolkit.system.output import log_to_stdout

COMMAND = "train"

NO_FILES_OF_HYDRA = ("hydra.output_subdir=null", "hydra/job_logging=none", "hydra.sweep.dir=multirun")
"""A run's own folder has its configuration and its log; what launchers write goes to one place."""


def run_jobs(overrides: Sequence[str]) -> int:
    """Start a job for every combination; returns 0 once the launcher says that all have ended well.

    Args:
        overrides: Hydra's, those of its own (``hydra...=``) among them.

    Raises:
        UserError: an unknown key.
        SystemExit: Hydra has said what it cannot do, such as start a launcher that is not installed.
    """
    refuse_unknown(COMMAND, [override for override in overrides if not override.startswith("hydra")])
    import hydra

    composition.register(COMMAND)
    start = hydra.main(version_base="1.3", config_path=str(composition.command_dir(COMMAND)), config_name=COMMAND)
    with patch.object(sys, "argv", [f"svt {COMMAND}", "--multirun", *NO_FILES_OF_HYDRA, *overrides]):
        start(run_job)()
    return 0


def run_job(node: Any) -> None:
    """One of the runs, wherever the launcher starts it; ends the process where it fails, as the command does.

    Raises:
        SystemExit: with the status of the command, where it is not 0.
    """
    from hydra.core.hydra_config import HydraConfig

    typed = shlex.join(["svt", COMMAND, *HydraConfig.get().overrides.task])
    try:
        with patch.object(logging.getLogger(), "handlers", []), log_to_stdout():  # a launcher's would say all twice
            status = train.run(composition.to_config(COMMAND, node), typed)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    if status:
        raise SystemExit(status)
