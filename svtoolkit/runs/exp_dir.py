"""The folder of a run: what lies where in it, and whether a run that is there may be resumed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from svtoolkit.config import TrainConfig
from svtoolkit.errors import UserError, without_credentials
from svtoolkit.runs.full_state import list_states
from svtoolkit.runs.history import HISTORY, History
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.file_lock import delete_lock
from svtoolkit.system.output import DiscreetFormatter
from svtoolkit.system.output_folder import hold_alone, remove_leftovers
from svtoolkit.system.plain_data import MalformedError, flatten, read_yaml, write_yaml
from svtoolkit.system.regular_file import check_regular, is_regular

log = logging.getLogger(__name__)

CHECKPOINTS, LOGS, VALIDATION, CONFIG = "checkpoints", "logs", "validation", "config.yaml"
LOCK = ".lock"
"""File in the folder of logs that a run holds as long as it trains."""

BUSY = (
    "another run is training there, and two would overwrite each other's states; wait for it, stop it, or choose "
    "another exp_dir"
)

FREE_KEYS = {
    "exp_dir", "resume", "data.root", "data.source", "data.cache_dir", "data.cache_gib", "data.num_workers",
    "data.max_bad", "loss.shard", "trainer.device", "trainer.threads", "trainer.checkpoint_minutes",
    "trainer.checkpoint_steps",
    "trainer.keep_states", "trainer.keep_last", "trainer.keep_best", "trainer.nonfinite_patience", "trainer.log_steps",
    "trainer.loggers",
}  # fmt: skip
"""Keys that may change when a run is resumed: none of them changes what is learnt."""

EXACT_STRATEGIES = {"auto", "store", "reversible", "checkpoint", "recompute_norm", "offload", "planned"}
"""Among these the strategy of a run may change when it is resumed: the gradients of each are those of stored
activations; bit for bit for ResNets, else up to rounding (plans, values that are used twice), as with another number of
threads."""

ARITHMETIC = {"memory.exact", "memory.exact_bits"}
"""Keys of strategies that belong to the arithmetic of the network."""

NEW_GROUPS = ("compress", "distillation", "pairwise")
"""Groups that runs of older versions do not say."""

NEW_KEYS: dict[str, Any] = {"choose": "last", "crop_seconds": 4.0, "data.warps": [1.0]}
"""Keys that runs and cross-validations of older versions do not say, and what they had."""

FREE_PREFIX = "trainer.logger_settings"
"""So may all that begin with it."""


def check_run(config: TrainConfig) -> None:
    """Refuse an exp_dir that holds another run.

    Raises:
        UserError: the run there has another configuration, or it is not to be resumed.
    """
    exp_dir = Path(config.exp_dir)
    states = list_states(exp_dir / CHECKPOINTS)
    if config.resume not in ("auto", "never"):
        raise UserError(f"resume is {config.resume!r}, expected auto or never")
    if not states:
        return
    if config.resume == "never":
        raise UserError(f"{exp_dir}: holds a run already and resume=never; choose another exp_dir, or resume=auto")
    check_same_config(exp_dir / CONFIG, asdict(config))


def write_config(config: TrainConfig) -> None:
    """Write config.yaml: the composed configuration, as the newest command gave it, without credentials of URLs.

    Raises:
        UserError: exp_dir cannot be written to.
    """
    path = Path(config.exp_dir) / CONFIG
    with _explaining(path), atomic_write(path) as stream:
        write_yaml(without_credentials(asdict(config)), stream)


def open_history(folder: Path, *, resume_step: int) -> History:
    """The history of the run, up to the step that it resumes at.

    Raises:
        UserError: it is malformed or cannot be written.
    """
    with _explaining(folder):
        return History(folder, resume_step=resume_step)


@contextmanager
def alone_in(logs: Path) -> Iterator[None]:
    """Inside the block no other run trains into the same exp_dir, and all that is logged goes to train.log, too.

    Files that a killed run was writing are removed.

    Args:
        logs: the run's folder for them, made if it is missing.

    Raises:
        UserError: another run holds exp_dir, or the folder cannot be written to.
    """
    with _log_file(logs), hold_alone(logs / LOCK, busy=f"{logs.parent}: {BUSY}") as alone:
        if alone:
            remove_leftovers([logs.parent, logs, logs.parent / CHECKPOINTS, logs.parent / VALIDATION])
        yield


@contextmanager
def nothing_left_of_a_failed_start(exp_dir: Path) -> Iterator[None]:
    """If the block fails before the first step of a run in a new or empty folder, that folder is as it was before.

    A folder that another run has taken meanwhile stays, and one where it cannot be told (a file system without locks).
    """
    was_empty = not exp_dir.exists() or (exp_dir.is_dir() and not any(exp_dir.iterdir()))
    missing = [folder for folder in (exp_dir, *exp_dir.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        if was_empty and exp_dir.is_dir():
            with suppress(UserError, OSError):
                _remove_start(exp_dir, missing)
        raise


def _remove_start(exp_dir: Path, missing: Sequence[Path]) -> None:
    """Delete what a start wrote, then the folders that were not there, innermost first."""
    logs = exp_dir / LOGS
    if logs.is_dir():
        with hold_alone(logs / LOCK, busy=f"{exp_dir}: {BUSY}") as alone:
            history = logs / HISTORY
            if not alone or list_states(exp_dir / CHECKPOINTS) or (history.is_file() and history.stat().st_size):
                return
            parts = [exp_dir / CONFIG, exp_dir / CHECKPOINTS, exp_dir / VALIDATION]
            for path in parts + [path for path in logs.iterdir() if path.name != LOCK]:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            delete_lock(logs / LOCK)
        logs.rmdir()
    for folder in missing:
        folder.rmdir()


@contextmanager
def _log_file(folder: Path) -> Iterator[None]:
    with _explaining(folder):
        folder.mkdir(parents=True, exist_ok=True)
        check_regular(folder / "train.log")
        handler = logging.FileHandler(folder / "train.log", encoding="utf-8")
    handler.setFormatter(DiscreetFormatter("%(asctime)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """What the system says of a file or folder that cannot be written, with a remedy."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error}); choose another exp_dir or free some disk") from error


def check_same_config(saved: Path, content: dict[str, Any], *, further: Collection[str] = ()) -> None:
    """Refuse to resume what was begun with another configuration.

    Args:
        saved: the configuration that it was begun with.
        content: that of now.
        further: keys that may change, too.

    Raises:
        UserError: a key that changes what is learnt differs, or the file cannot be read.
    """
    if not is_regular(saved):
        raise UserError(f"{saved}: is missing, but there are states of a run; restore it or use another exp_dir")
    try:
        before = read_yaml(saved)
    except MalformedError as error:
        raise UserError(
            f"{saved}: is not the configuration of a run ({error}); restore it or use another exp_dir"
        ) from error
    if not isinstance(before, dict):
        raise UserError(f"{saved}: is not the configuration of a run; restore it or use another exp_dir")
    begun = asdict(TrainConfig())
    before = {group: begun[group] for group in NEW_GROUPS} | before  # what a run had before there was a choice
    before, now = (flatten(without_credentials(each)) for each in (before, content))
    before = {key: value for key, value in NEW_KEYS.items() if key in now} | before
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    free = {
        *FREE_KEYS,
        *further,
        *(["trainer.max_batch_size"] if now["trainer.batch_size"] is not None else []),
    }  # no effect
    if _are_exact(before) and _are_exact(now):
        free |= {key for key in changed if key.startswith("memory.")} - ARITHMETIC
    changed = [key for key in changed if key not in free and not key.startswith(FREE_PREFIX)]
    if changed:
        listed = ", ".join(f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in changed)
        raise UserError(
            f"{saved}: the run there has another configuration: {listed}; put it back or use another exp_dir"
        )


def _are_exact(settings: dict[str, Any]) -> bool:
    """Whether the gradients under the strategy of a run are those of stored activations."""
    return settings.get("memory.strategy") in EXACT_STRATEGIES and not settings.get("memory.half")


def set_aside_after(state: Path) -> None:
    """Rename newer states: one that cannot be used must not take the place of a whole one when old ones are dropped."""
    for path in [path for path in list_states(state.parent) if path.name > state.name]:
        log.warning("%s: renamed to %s.damaged", path, path.name)
        path.rename(path.with_name(f"{path.name}.damaged"))
