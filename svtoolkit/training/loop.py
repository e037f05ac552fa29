"""The loop over optimizer steps: schedules, history, validation, checkpoints, stopping."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from svtoolkit.config import TrainerConfig
from svtoolkit.crops.crop import CropBatch
from svtoolkit.errors import UserError
from svtoolkit.memory.peak import peak_bytes, reset_peak
from svtoolkit.optim import WeightAverage
from svtoolkit.runs.epoch_weights import drop_epoch_weights, save_epoch_weights
from svtoolkit.runs.full_state import save_state
from svtoolkit.runs.history import History
from svtoolkit.runs.run_history import of_last_stage
from svtoolkit.system.progress import Progress, show_progress
from svtoolkit.system.signals import ASKING, StopRequest
from svtoolkit.training.learning_check import LearningCheck
from svtoolkit.training.meters import Meter
from svtoolkit.training.peak_check import PeakCheck
from svtoolkit.training.run_schedule import RunSchedule
from svtoolkit.training.run_state import UnfitStateError, collect_state, restore_state
from svtoolkit.training.step import OptimizerStep

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class TrainingLoop:
    """Trains from any step to the end of the schedule.

    Args:
        step: the optimizer step.
        schedule: steps, learning rate and margin.
        settings: the trainer's part of the configuration.
        checkpoints: folder of full states and epoch weights.
        validate: called at the end of an epoch; returns its figures.
        name_utterances: rows of the training set -> what to call them in a message.
        fingerprint: of the training data; a state of other data is refused.
        speakers: digest of the speakers that the classes stand for, kept with each state.
        memory: strategy in force, as a state keeps it.
        peak_check: looks at the memory of the first steps.
        ends_at: step that ``run`` ends after, before the end of the schedule; None: there is none.
        figures: called at the end of an epoch; what else its record says.
        average: of the weights, updated after each step that changed them; None: none is kept.
        report_bad: given the utterances that gave no crop: row of the training set's utterances -> reason.

    Of several processes the first one validates and writes; history is given to it alone.
    """

    step: OptimizerStep
    schedule: RunSchedule
    settings: TrainerConfig
    checkpoints: Path
    _: KW_ONLY
    validate: Callable[[], dict[str, float]] | None
    validate_every: int
    name_utterances: Callable[[list[int]], str]
    fingerprint: str
    speakers: str
    report_bad: Callable[[Mapping[int, str]], object]
    memory: str
    peak_check: PeakCheck
    ends_at: int | None = None
    figures: Callable[[], dict[str, float]] = dict
    average: WeightAverage | None = None

    def __post_init__(self) -> None:
        self.world = self.step.world
        self.meters = {"log": Meter(), "epoch": Meter()}
        self.finished_steps = 0
        self.seconds = 0.0
        self.nonfinite_steps = 0
        self._saved_at = time.monotonic()

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a full state.

        Raises:
            UnfitStateError: it is of other data, or of another network, head or optimizer.
        """
        if state["facts"]["fingerprint"] != self.fingerprint:
            raise UnfitStateError(
                f"{self.checkpoints}: the saved run was trained on other data (utterances, speakers, speeds or warps "
                "differ); restore the data directory, or start again in another exp_dir"
            )
        facts = restore_state(state, self.step, self.meters, self.average)
        self.finished_steps = facts["finished_steps"]
        self.seconds = facts["seconds"]
        self.nonfinite_steps = facts["nonfinite_steps"]

    @property
    def is_finished(self) -> bool:
        return self.finished_steps >= self.schedule.total_steps

    @property
    def is_at_end(self) -> bool:
        """Whether ``run`` has nothing left to do."""
        return self.is_finished or self.finished_steps == self.ends_at

    def run(self, batches: Iterator[CropBatch], history: History | None) -> int | None:
        """Train to the end of the schedule or to ``ends_at``.

        Returns:
            the number of the signal that stopped it earlier, else None.
        """
        self._saved_at = time.monotonic()
        self.learning = LearningCheck(self.schedule, self.step.head.num_classes, self.step.network.parameters())
        reset_peak(self.step.device)
        with StopRequest() as stop, self._progress() as progress:
            while not self.is_at_end:
                self._one_step(batches, history, progress)
                self.peak_check.look(self.step.device)
                at_epoch_end = self.finished_steps % self.schedule.steps_per_epoch == 0
                if at_epoch_end:
                    if history is not None:
                        self._report_epoch(history)
                    self.meters["epoch"].clear()
                asked, is_late = self._agree(stop)
                every = self.settings.checkpoint_steps
                are_due = every > 0 and self.finished_steps % every == 0
                if at_epoch_end or asked or is_late or are_due:
                    self._save(history, must_succeed=asked is not None or self.is_at_end)
                if asked and not self.is_finished:
                    return asked
        return None

    def _progress(self) -> AbstractContextManager[Progress]:
        return show_progress(
            "train",
            self.schedule.total_steps,
            "step",
            done=self.finished_steps,
            shown=self.world.is_first,
            each=(self.step.batch_size, "utt"),
        )

    def _one_step(self, batches: Iterator[CropBatch], history: History | None, progress: Progress) -> None:
        rate = self.schedule.learning_rate(self.finished_steps)
        for group in self.step.optimizer.param_groups:
            group["lr"] = rate
        self.step.head.margin = self.schedule.margin(self.finished_steps)
        result = self.step(batches)
        self.finished_steps += 1
        self.seconds += result.meter.seconds / self.world.size
        if result.bad:
            self.report_bad(result.bad)
        if result.nonfinite_entries:
            self._count_nonfinite(result.nonfinite_entries)
        else:
            self.nonfinite_steps = 0
            if self.average is not None:
                self.average.update(self.step.network)
            for meter in self.meters.values():
                meter.add(result.meter)
        window = self.meters["log"]
        if self.finished_steps % self.settings.log_steps == 0 and window.crops:
            averages = window.averages()
            shown = {"lr": rate, "margin": self.step.head.margin}
            if history is not None:
                history.add({"kind": "step", **self._position(), **averages, **shown, "seconds": self.seconds})
            progress.tell(*self._progress_details(averages, **shown))
            window.clear()
        progress.update()

    def _progress_details(self, averages: dict[str, float], *, lr: float, margin: float) -> list[str]:
        return [
            f"loss {averages['loss']:.3f}",
            f"epoch {self._position()['epoch']}/{self.schedule.total_steps // self.schedule.steps_per_epoch}",
            f"lr {lr:.2g}",
            f"acc {100 * averages['accuracy']:.1f}% (no margin {100 * averages['accuracy_no_margin']:.1f}%)",
            f"margin {margin:.2f}",
            f"wait {100 * averages['data_wait']:.0f}%",
        ]

    def _position(self) -> dict[str, int]:
        return {"step": self.finished_steps, "epoch": (self.finished_steps - 1) // self.schedule.steps_per_epoch + 1}

    def _count_nonfinite(self, entries: list[int]) -> None:
        self.nonfinite_steps += 1
        log.warning(
            "step %d: loss or gradient is not finite, the update is skipped (%d in a row); utterances: %s",
            self.finished_steps,
            self.nonfinite_steps,
            self.name_utterances(entries),
        )
        if self.nonfinite_steps >= self.settings.nonfinite_patience:
            raise UserError(
                f"step {self.finished_steps}: loss or gradient was not finite {self.nonfinite_steps} times in a row, "
                f"last for {self.name_utterances(entries)}; check these files with `svt validate`, lower optim.lr, or "
                "set trainer.gradient_clip"
            )

    def _report_epoch(self, history: History) -> None:
        position, meter = self._position(), self.meters["epoch"]
        epoch = position["epoch"]
        record: dict[str, Any] = {"kind": "epoch", **position, **meter.averages()}
        if self.validate and (epoch % self.validate_every == 0 or self.is_finished):
            begin = time.perf_counter()
            record.update(self.validate())
            self.seconds += time.perf_counter() - begin
        record.update(self.figures())
        record.update(peak_memory_bytes=peak_bytes(self.step.device), seconds=self.seconds)
        reset_peak(self.step.device)
        history.add(record)
        self.learning.look(self.finished_steps, record)
        log.info("%s", _epoch_text(record, self.schedule.total_steps // self.schedule.steps_per_epoch))
        self._save_epoch_weights(epoch)
        keep = {"keep_last": self.settings.keep_last, "keep_best": self.settings.keep_best}
        drop_epoch_weights(self.checkpoints, of_last_stage(history.epochs()), **keep)

    def _save_epoch_weights(self, epoch: int) -> None:
        """A failure is survived while training continues; a run without its last weights is not a finished one."""
        try:
            save_epoch_weights(self.checkpoints, epoch, self.step.network.state_dict())
        except OSError as error:
            if self.is_finished:
                raise self._not_written(f"the weights of epoch {epoch}", error) from error
            log.error("the weights of epoch %d could not be written (%s); free some disk", epoch, error)

    def _agree(self, stop: StopRequest) -> tuple[int | None, bool]:
        """The signal that asked any process to stop, and whether the first one's last state is too long ago.

        A signal that comes later is answered after the next step, and by all processes after the same one.
        """
        late = time.monotonic() - self._saved_at > 60 * self.settings.checkpoint_minutes
        notes = {str(number): float(stop.signal_number == number) for number in ASKING}
        totals = self.world.all_reduce_sum({**notes, "late": float(late and self.world.is_first)})
        return next((number for number in ASKING if totals[str(number)]), None), bool(totals["late"])

    def _save(self, history: History | None, *, must_succeed: bool) -> None:
        """Write the full state; a failure is survived while training continues, since the state before it stays."""
        self._saved_at = time.monotonic()
        state = collect_state(
            self.step,
            self.meters,
            self.average,
            finished_steps=self.finished_steps,
            seconds=self.seconds,
            nonfinite_steps=self.nonfinite_steps,
            fingerprint=self.fingerprint,
            speakers=self.speakers,
            memory=self.memory,
            micro_batch=self.step.batch_size // self.world.size // self.step.accumulation,
        )  # by all processes: they gather the head
        if history is None:
            return
        try:
            history.sync()
            save_state(self.checkpoints, self.finished_steps, state, keep=self.settings.keep_states)
        except OSError as error:
            if must_succeed:
                raise self._not_written(f"the state after step {self.finished_steps}", error) from error
            log.error(
                "the state after step %d could not be written (%s); the one before it stays", self.finished_steps, error
            )
        self._saved_at = time.monotonic()

    def _not_written(self, what: str, error: OSError) -> UserError:
        return UserError(
            f"{self.checkpoints}: {what} could not be written ({error}); "
            "free some disk and run the same command again: it resumes from the newest state"
        )


def _epoch_text(record: dict[str, Any], epochs: int) -> str:
    validation = ""
    if "validation_eer" in record:
        validation = f", validation EER {100 * record['validation_eer']:.2f} %"
    if "ema_validation_eer" in record:
        validation += f" (moving average {100 * record['ema_validation_eer']:.2f} %)"
    compared = ""
    if "pairwise" in record:
        compared = f", pairwise {record['pairwise']:.3f} ({100 * record['pairwise_accuracy']:.1f} %)"
    return (
        f"epoch {record['epoch']}/{epochs}: loss {record['loss']:.3f}, accuracy {100 * record['accuracy']:.1f} % "
        f"(no margin {100 * record['accuracy_no_margin']:.1f} %){compared}{validation}, waiting for data "
        f"{100 * record['data_wait']:.0f} %, peak memory {record['peak_memory_bytes'] / 2**30:.2f} GiB, "
        f"{record['seconds'] / 60:.1f} min"
    )
