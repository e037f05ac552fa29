"""One process or several: alone, as torchrun started it, or started here, one a device.

Numbers that cannot be are refused before torch is imported or a process started.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from svtoolkit.config import TrainConfig
from svtoolkit.distributed.rank import rank_in_environment
from svtoolkit.errors import UserError
from svtoolkit.training.settings import check_settings


def launch(config: TrainConfig) -> int | None:
    """Train on ``trainer.devices`` devices of this machine, or as one of the processes that torchrun started.

    Returns:
        as ``train``.

    Raises:
        UserError: as ``train``, or fewer devices than asked for, or a process that was killed.
    """
    rank, devices = rank_in_environment(), config.trainer.devices
    if rank is not None and devices not in (1, rank.local_size):
        raise UserError(
            f"trainer.devices is {devices}, but {rank.local_size} processes were started on this machine; "
            "leave trainer.devices out where torchrun starts the run"
        )
    check_settings(config, devices if rank is None else rank.size)
    from svtoolkit.runs.exp_dir import nothing_left_of_a_failed_start

    is_first = rank is None or rank.rank == 0
    with nothing_left_of_a_failed_start(Path(config.exp_dir)) if is_first else nullcontext():
        if rank is None and devices == 1:
            from svtoolkit.training.experiment import train

            return train(config)
        from svtoolkit.training.processes import start_processes, train_as

        return start_processes(config) if rank is None else train_as(rank, config)
