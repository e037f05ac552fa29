"""From a configuration to a trained network in exp_dir: setup, fit, loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from svtoolkit.config import TrainConfig
from svtoolkit.crops.batch_size import choose_batch_size
from svtoolkit.crops.class_tuples import tuple_size
from svtoolkit.crops.crop import CropBatch
from svtoolkit.crops.loader import load_crops, workers_of
from svtoolkit.crops.sampler import BatchSampler, share_of
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.device import autocast, choose_device, is_out_of_memory
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.errors import UserError
from svtoolkit.loggers.run_logger import FAILED, FINISHED, STOPPED
from svtoolkit.losses import build_pairwise
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.optim import WeightAverage
from svtoolkit.planning.micro_batch import predict_micro_batch
from svtoolkit.runs.exp_dir import CHECKPOINTS, LOGS, alone_in, check_run, set_aside_after, write_config
from svtoolkit.runs.full_state import read_states
from svtoolkit.runs.history import History
from svtoolkit.system.allocator import freed_memory_kept
from svtoolkit.system.progress import logs_above_bars
from svtoolkit.training.bad_utterances import BadUtterances
from svtoolkit.training.distillation import read_teacher
from svtoolkit.training.fitting import explain_oom_at_start, fit_micro_batch, gpu_memory_bytes, oom_error, try_pass
from svtoolkit.training.initialisation import read_start, speakers_digest
from svtoolkit.training.loop import TrainingLoop
from svtoolkit.training.memory_choice import card_of, choose_memory, expected_peak, text_of
from svtoolkit.training.peak_check import PeakCheck
from svtoolkit.training.run_record import open_record
from svtoolkit.training.run_schedule import build_run_schedule
from svtoolkit.training.run_state import UnfitStateError, check_state
from svtoolkit.training.run_summary import log_run, name_utterances
from svtoolkit.training.settings import check_settings, micro_batch_of
from svtoolkit.training.setup import count_classes, seed_everything, trainable_with_weights
from svtoolkit.training.step import OptimizerStep
from svtoolkit.training.two_stages import enter_stage
from svtoolkit.training.validation import build_validation

log = logging.getLogger(__name__)


def train(config: TrainConfig, world: World = ALONE) -> int | None:
    """Train as configured, resuming where an earlier run in exp_dir stopped.

    Args:
        world: the processes that train together; all call this with the same configuration.

    Returns:
        None when the run is finished, or the number of the signal that stopped it.

    Raises:
        UserError: data, configuration or disk are at fault.
    """
    check_settings(config, world.size)
    logs = Path(config.exp_dir) / LOGS
    with alone_in(logs) if world.is_first else nullcontext(), logs_above_bars(logging.getLogger()):
        _check_run(config, world)
        with explain_oom_at_start(config):
            experiment = _resume(config, world) or _build(config, world, None)
        loop = experiment.loop
        if loop.finished_steps:
            if loop.is_finished:
                log.info("finished already after step %d: there is nothing left to do", loop.finished_steps)
                return None
            log.info("resuming after step %d of %d", loop.finished_steps, loop.schedule.total_steps)
        history = open_record(config, resume_step=loop.finished_steps) if world.is_first else None
        outcome = FAILED
        try:
            stopped_by = _run(experiment, history)
            while stopped_by is None and not experiment.loop.is_finished:  # stage two resumes what stage one has saved
                del experiment, loop
                world.barrier()  # the first process has written it
                with explain_oom_at_start(config):
                    following = _resume(config, world)
                assert following is not None
                experiment = following
                stopped_by = _run(experiment, history)
            outcome = FINISHED if stopped_by is None else STOPPED
            return stopped_by
        finally:
            if history is not None:
                history.close(outcome)


def _run(experiment: Experiment, history: History | None) -> int | None:
    """Train to the end of the stage; what ``train`` returns.

    Raises:
        UserError: memory ran out, or the loop says what is wrong.
    """
    loop, config, world = experiment.loop, experiment.config, experiment.world
    batches = experiment.batches()
    try:
        with freed_memory_kept() if experiment.device.type == "cpu" else nullcontext():
            return loop.run(batches, history)
    except RuntimeError as error:
        limit, micro_batch = gpu_memory_bytes(experiment.device), experiment.sampler.micro_batch
        if is_out_of_memory(error) and experiment.device.type == "mps":
            raise UserError(
                f"the memory of mps ran out after step {loop.finished_steps}, with {micro_batch} crops at once; "
                "the same command resumes from the newest state; a new run needs less with trainer.micro_batch="
                f"{max(1, micro_batch // 2)}"
            ) from error
        if limit is None or not is_out_of_memory(error):
            raise
        classes = experiment.step.head.num_classes
        raise oom_error(config, loop.finished_steps, micro_batch, classes, world, limit) from error
    finally:
        batches.close()


class Experiment:
    """All parts of a run, built from its configuration; of several processes, the parts of one.

    Args:
        state: that the run is about to resume from; None: it begins.
    """

    def __init__(self, config: TrainConfig, world: World = ALONE, state: dict[str, Any] | None = None) -> None:
        self.world = world
        settings = config.trainer
        self.device = choose_device(settings.device, "trainer.device") if world.size == 1 else world.device
        autocast(self.device, settings.precision)  # refuses an unknown precision before any work
        start = read_start(config) if state is None else None
        self.data = TrainingData(config)
        self.bad_utterances = BadUtterances(
            Path(config.exp_dir),
            self.data.utterances,
            config.data.max_bad,
            is_resumed=state is not None,
            writes=world.is_first,
        )
        self.bad_utterances.add(self.data.bad_files)
        classes = self.data.training_set.num_classes
        of_these_data = state is not None and state["facts"]["fingerprint"] == self.data.fingerprint()
        if state is not None and of_these_data and len(state["head"]["weight"]) < classes:
            raise UnfitStateError(
                f"the saved state does not fit this run: its head has {len(state['head']['weight'])} classes, the data "
                f"have {classes}; use another exp_dir"
            )
        batch_size = choose_batch_size(settings, len(self.data.training_set), world.size, tuple_size(config.pairwise))
        steps_per_epoch = len(self.data.training_set) // batch_size
        of_head = count_classes(config, start, state, classes)
        config, state, self.stage = enter_stage(config, state, num_classes=of_head, steps_per_epoch=steps_per_epoch)
        share = share_of(batch_size, world.size)
        card = card_of(self.device)
        wanted = None if settings.micro_batch is None else micro_batch_of(settings, share)
        memory, micro_batch = choose_memory(config, share, classes, card, world, state, wanted, self.device)
        self.config = config = replace(config, memory=memory)
        self.sampler = self._build_sampler(batch_size, micro_batch or self._micro_batch(share, state))
        self.schedule = build_run_schedule(config, self.sampler.steps_per_epoch)
        self.sampler.total_steps = self.schedule.total_steps
        self.front_end = front_end_of(config.features, config.data.warps).to(self.device)
        pairwise = build_pairwise(config.pairwise)
        trainable = trainable_with_weights(
            config, self.data.training_set, start, state, self.device, world, self.stage, pairwise
        )
        samples, _ = self.front_end.crop_size(config.data.crop_frames)
        self.step = OptimizerStep(
            self.front_end,
            trainable.network,
            trainable.head,
            trainable.optimizer,
            self.data.spec_augment,
            device=self.device,
            precision=settings.precision,
            batch_size=self.sampler.batch_size,
            micro_batch=self.sampler.micro_batch,
            gradient_clip=settings.gradient_clip,
            world=world,
            augmenter=self.data.augmenter,
            penalty=self.stage.penalty(trainable.network, trainable.head) if self.stage else None,
            teacher=read_teacher(config, self.device, samples=samples, stored=self.data.stored is not None),
            pairwise=pairwise,
        )
        self.average = None
        if settings.ema is not None and world.is_first:  # which validates and writes
            self.average = WeightAverage(trainable.network, settings.ema)
        self._fit()
        expected = expected_peak(config, card, share, self.step.head.num_classes, world, self.sampler.micro_batch)
        self.loop = TrainingLoop(
            self.step,
            self.schedule,
            settings,
            Path(config.exp_dir) / CHECKPOINTS,
            validate=self._build_validation() if world.is_first else None,
            validate_every=config.validation.every_epochs,
            name_utterances=lambda entries: name_utterances(self.data.training_set, entries),
            fingerprint=self.data.fingerprint(),
            speakers=speakers_digest(self.data.training_set),
            report_bad=partial(self.bad_utterances.add_rows, self.data.training_set.utterances),
            memory=text_of(config.memory),
            peak_check=PeakCheck(expected),
            ends_at=self.stage.ends_at if self.stage else None,
            figures=partial(self.stage.figures, trainable.network, trainable.head) if self.stage else dict,
            average=self.average,
        )
        self.state = state
        log_run(config, self.data, self.step, self.schedule, self.sampler.micro_batch, trainable.strategy)

    def restore(self) -> None:
        """Go on where the state is.

        Raises:
            UnfitStateError: it is of another run.
        """
        assert self.state is not None
        self.loop.restore(self.state)
        self.state = None

    def batches(self) -> Generator[CropBatch, None, None]:
        """Micro-batches from the step on that the loop stands at."""
        self.sampler.start_step = self.loop.finished_steps
        return load_crops(
            self.data.crops(self.front_end),
            self.sampler,
            num_workers=workers_of(self.config.data.num_workers, self.world.local_size),
            pin_memory=self.device.type == "cuda",
        )

    def _build_validation(self) -> Callable[[], dict[str, float]] | None:
        """On held-out speakers whose audio or features are read once: what is bad shows before the first step."""
        if self.data.held_out is None:
            return None
        validation, bad = build_validation(self.config, self.data.held_out, self.step, self.data.stored, self.average)
        self.bad_utterances.add(bad)
        return validation

    def _build_sampler(self, batch_size: int, micro_batch: int) -> BatchSampler:
        return BatchSampler(
            len(self.data.training_set),
            batch_size=batch_size,
            micro_batch=micro_batch,
            seed=self.config.seed,
            rank=self.world.rank,
            processes=self.world.size,
            windows=self.data.windows(),
            tuples=self.data.tuples(),
        )

    def _micro_batch(self, share: int, state: dict[str, Any] | None) -> int:
        """As configured; without a number, that of the run that is resumed, else what a GPU is predicted to hold."""
        limit = gpu_memory_bytes(self.device)
        if self.config.trainer.micro_batch is not None or limit is None:
            return micro_batch_of(self.config.trainer, share)
        if state is not None:
            return int(state["facts"]["micro_batch"])
        return predict_micro_batch(self.config, share, self.data.training_set.num_classes, limit, self.world.size)

    def _fit(self) -> None:
        """On a GPU: try the micro-batch, and take half of it where it does not fit."""
        limit = gpu_memory_bytes(self.device)
        if limit is None:
            return
        samples, _ = self.front_end.crop_size(self.config.data.crop_frames)
        configured = self.sampler.micro_batch
        self.sampler.micro_batch = fit_micro_batch(
            self.config,
            configured,
            self.step.head.num_classes,
            self.world,
            lambda crops: try_pass(self.step, samples, crops),
            limit,
        )
        self.step.accumulation *= configured // self.sampler.micro_batch


def _check_run(config: TrainConfig, world: World) -> None:
    """Whether the run in exp_dir, if there is one, is this one; then config.yaml is that of this command."""
    if world.is_first:
        check_run(config)
        write_config(config)
        world.barrier()
    else:
        world.barrier()
        check_run(config)


def _resume(config: TrainConfig, world: World) -> Experiment | None:
    """The experiment at its newest state that fits it; None where there is no state.

    Raises:
        UserError: there are states, and none can be read or fits.
    """
    unfit: list[tuple[Path, str]] = []
    for path, state in read_states(Path(config.exp_dir) / CHECKPOINTS, check_state):
        try:
            experiment = _build(config, world, state)
            experiment.restore()
        except UnfitStateError as error:
            unfit.append((path, str(error)))
            continue
        for other, reason in unfit:
            log.warning("%s is of another run (%s): falling back to the state before it", other, reason)
        world.barrier()  # all have listed the states
        if world.is_first:
            set_aside_after(path)
        return experiment
    if unfit:
        raise UserError(unfit[0][1])
    return None


def _build(config: TrainConfig, world: World, state: dict[str, Any] | None) -> Experiment:
    seed_everything(config, world)
    return Experiment(config, world, state)
