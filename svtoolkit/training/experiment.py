"""From a configuration to a trained network in exp_dir."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.contrib.logging import logging_redirect_tqdm

from svtoolkit.config import TrainConfig
from svtoolkit.crops.crop import CropBatch
from svtoolkit.crops.loader import load_crops
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import BatchSampler, share_of
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.device import autocast, choose_device
from svtoolkit.distributed.replication import synchronise_batch_norm
from svtoolkit.distributed.world import ALONE, World
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd, build_front_end
from svtoolkit.losses import MarginSchedule
from svtoolkit.optim import LearningRateSchedule
from svtoolkit.planning.assembly import Trainable, build_trainable
from svtoolkit.planning.memory_layout import fails_in_channels_last
from svtoolkit.planning.micro_batch import predict_micro_batch
from svtoolkit.runs.exp_dir import CHECKPOINTS, LOGS, VALIDATION, alone_in, find_state, open_history, write_config
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.training.fitting import card_bytes, fit_micro_batch, ran_out, room_to_begin, try_pass
from svtoolkit.training.initialisation import Start, choose_classes, read_start, speakers_digest
from svtoolkit.training.loop import Plan, TrainingLoop
from svtoolkit.training.settings import check_settings, micro_batch_of
from svtoolkit.training.step import OptimizerStep
from svtoolkit.training.validation import Validation

log = logging.getLogger(__name__)


def train(config: TrainConfig, world: World = ALONE) -> int | None:
    """Train as configured, going on where an earlier run in exp_dir stopped.

    Args:
        world: the processes that train together; all call this with the same configuration.

    Returns:
        None when the plan is finished, or the number of the signal that stopped it.

    Raises:
        UserError: data, configuration or disk are at fault.
    """
    check_settings(config, world.size)
    logs = Path(config.exp_dir) / LOGS
    with alone_in(logs) if world.is_first else nullcontext(), logging_redirect_tqdm([logging.getLogger()]):
        state = _state_to_go_on_from(config, world)
        _seed_everything(config, world)
        with room_to_begin(config):
            experiment = Experiment(config, world, state)
            loop = experiment.loop
            if state is not None:
                loop.restore(state)
        if state is not None:
            if loop.is_finished:
                log.info("finished already after step %d: there is nothing left to do", loop.finished_steps)
                return None
            log.info("going on after step %d of %d", loop.finished_steps, experiment.plan.total_steps)
        del state  # of a large head it is gigabytes
        history = open_history(logs, resume_step=loop.finished_steps) if world.is_first else None
        batches = experiment.batches()
        try:
            return loop.run(batches, history)
        except torch.OutOfMemoryError as error:
            limit = card_bytes(experiment.device)
            if limit is None:
                raise
            micro_batch, classes = experiment.sampler.micro_batch, experiment.step.head.num_classes
            raise ran_out(config, loop.finished_steps, micro_batch, classes, world, limit) from error
        finally:
            batches.close()
            if history is not None:
                history.close()


def _state_to_go_on_from(config: TrainConfig, world: World) -> dict[str, Any] | None:
    """The first process looks and sets damaged states aside before the others look."""
    if world.is_first:
        state = find_state(config)
        write_config(config)
        world.wait()
        return state
    world.wait()
    return find_state(config)


class Experiment:
    """All parts of a run, built from its configuration; of several processes, the parts of one.

    Args:
        state: that the run is going to go on from; None: it begins.
    """

    def __init__(self, config: TrainConfig, world: World = ALONE, state: dict[str, Any] | None = None) -> None:
        self.config = config
        self.world = world
        settings = config.trainer
        self.device = choose_device(settings.device) if world.size == 1 else world.device
        autocast(self.device, settings.precision)  # refuses an unknown precision before any work
        start = read_start(config) if state is None else None
        share = share_of(settings.batch_size, world.size)
        self.data = TrainingData(config)
        micro_batch = self._micro_batch(share)
        self.sampler = BatchSampler(
            len(self.data.training_set),
            batch_size=settings.batch_size,
            micro_batch=micro_batch,
            seed=config.seed,
            rank=world.rank,
            processes=world.size,
            windows=self.data.windows(),
        )
        self.plan = self._plan()
        self.sampler.total_steps = self.plan.total_steps
        self.front_end = self._build_front_end().to(self.device)
        trainable = self._build_trainable(start, state)
        self.step = self._build_step(trainable, micro_batch)
        micro_batch = self._fit(micro_batch)
        self.loop = TrainingLoop(
            self.step,
            self.plan,
            settings,
            Path(config.exp_dir) / CHECKPOINTS,
            validate=self._validation(self.data.held_out),
            validate_every=config.validation.every_epochs,
            name_utterances=self._name_utterances,
            fingerprint=self.data.fingerprint(),
            speakers=speakers_digest(self.data.training_set),
        )
        self._announce(micro_batch, trainable.strategy)

    def batches(self) -> Generator[CropBatch, None, None]:
        """Micro-batches from the step on that the loop stands at."""
        self.sampler.start_step = self.loop.finished_steps
        return load_crops(
            self.data.crops(self.front_end),
            self.sampler,
            num_workers=self.config.data.num_workers,
            pin_memory=self.device.type == "cuda",
        )

    def _micro_batch(self, share: int) -> int:
        """As configured; without a number, what a GPU is predicted to hold, and on a CPU all of the share."""
        limit = card_bytes(self.device)
        if self.config.trainer.micro_batch is not None or limit is None:
            return micro_batch_of(self.config.trainer, share)
        classes = self.data.training_set.num_classes
        return predict_micro_batch(self.config, share, classes, limit, self.world.size)

    def _plan(self) -> Plan:
        config = self.config
        steps = self.sampler.steps_per_epoch
        total = steps * config.trainer.epochs
        return Plan(
            steps,
            total,
            LearningRateSchedule(**asdict(config.schedule), lr=config.optim.lr, total_steps=total),
            MarginSchedule(**asdict(config.margin_schedule), final=config.loss.margin, total_steps=total),
        )

    def _build_front_end(self) -> FrontEnd:
        try:
            return build_front_end(**asdict(self.config.features))
        except (ImportError, ValueError) as error:
            raise UserError(f"features cannot be computed: {error}") from error

    def _build_trainable(self, start: Start | None, state: dict[str, Any] | None) -> Trainable:
        config = self.config
        num_classes = None if state is None else len(state["head"]["weight"])
        if start is not None:
            start = choose_classes(start, config, self.data.training_set)
            num_classes = start.num_classes
        trainable = build_trainable(
            config.model,
            config.memory,
            config.loss,
            config.optim,
            num_bins=config.features.num_bins,
            num_classes=num_classes or self.data.training_set.num_classes,
            device=self.device,
            channels_last=config.trainer.channels_last,
            world=self.world,
        )
        if start is not None:
            start.put_into(trainable.network, trainable.head)
        if not config.trainer.sync_batch_norm:
            return trainable
        return trainable._replace(network=synchronise_batch_norm(trainable.network, self.world))

    def _build_step(self, trainable: Trainable, micro_batch: int) -> OptimizerStep:
        config = self.config
        return OptimizerStep(
            self.front_end,
            trainable.network,
            trainable.head,
            trainable.optimizer,
            self.data.spec_augment,
            device=self.device,
            precision=config.trainer.precision,
            batch_size=config.trainer.batch_size,
            micro_batch=micro_batch,
            gradient_clip=config.trainer.gradient_clip,
            world=self.world,
        )

    def _fit(self, micro_batch: int) -> int:
        """The micro-batch, or half of it where the card does not hold it."""
        limit = card_bytes(self.device)
        if limit is None:
            return micro_batch
        samples = self.front_end.num_samples(self.config.data.crop_frames)
        fitting = fit_micro_batch(
            self.config,
            micro_batch,
            self.step.head.num_classes,
            self.world,
            lambda crops: try_pass(self.step, samples, crops),
            limit,
        )
        self.sampler.micro_batch = fitting
        self.step.accumulation *= micro_batch // fitting
        return fitting

    def _validation(self, held_out: Manifest | None) -> Callable[[], dict[str, float]] | None:
        if held_out is None:
            return None
        config = self.config
        if not self.world.is_first:
            return None
        validation = Validation(
            held_out.kaldi_dir(),
            targets_per_speaker=config.validation.targets_per_speaker,
            seed=config.seed,
            folder=Path(config.exp_dir) / VALIDATION,
        )
        extractor = EmbeddingExtractor(
            self.step.network,
            self.front_end,
            self.device,
            channel=config.data.channel,
            resample=config.data.resample,
            num_workers=max(1, config.data.num_workers),
        )
        return lambda: validation.run(extractor)

    def _name_utterances(self, entries: list[int]) -> str:
        training_set = self.data.training_set
        rows = [training_set.entry(entry) for entry in entries[:10]]
        names = [f"{training_set.utterances[row].utterance_id} (speed {speed:g})" for row, speed, _ in rows]
        return ", ".join(names) + (f" and {len(entries) - 10} more" if len(entries) > 10 else "")

    def _announce(self, micro_batch: int, strategy: str) -> None:
        config = self.config
        weights = sum(parameter.numel() for parameter in self.step.network.parameters())
        log.info(
            "%s: %.2f M parameters, embedding of %d; memory strategy: %s",
            config.model.name, weights / 1e6, config.model.embedding_dim, strategy,
        )  # fmt: skip
        if config.trainer.channels_last and fails_in_channels_last(self.step.network, self.device):
            log.info(
                "trainer.channels_last is left out: on the CPU networks this narrow fail in it (a fault of oneDNN)"
            )
        self.data.announce()
        devices = f"{self.world.size} devices x " if self.world.size > 1 else ""
        log.info(
            "effective batch %d = %s%d x %d accumulated; "
            "%d epochs x %d steps = %d; peak learning rate %g, as configured",
            config.trainer.batch_size, devices, micro_batch, self.step.accumulation,
            config.trainer.epochs, self.plan.steps_per_epoch, self.plan.total_steps, config.optim.lr,
        )  # fmt: skip
        log.info("%s, %s, %d CPU threads", self.device, config.trainer.precision, torch.get_num_threads())


def _seed_everything(config: TrainConfig, world: World) -> None:
    random.seed(config.seed)
    np.random.seed(config.seed)
    torch.manual_seed(config.seed)
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    elif world.local_size > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // world.local_size))
    torch.backends.cudnn.deterministic = config.trainer.deterministic
    torch.backends.cudnn.benchmark = not config.trainer.deterministic
