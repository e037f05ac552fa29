"""From a configuration to a trained network in exp_dir."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader
from tqdm.contrib.logging import logging_redirect_tqdm

from svtoolkit.atomic import atomic_write
from svtoolkit.checkpoints.full_state import list_states, load_latest_state
from svtoolkit.config import TrainConfig
from svtoolkit.data.crops import CropBatch, CropDataset, CropGeometry, collate_crops
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sampler import BatchSampler
from svtoolkit.data.spec_augment import SpecAugment
from svtoolkit.data.splitting import split_speakers
from svtoolkit.data.training_set import TrainingSet
from svtoolkit.device import autocast, choose_device
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end
from svtoolkit.losses import MarginSchedule, build_head
from svtoolkit.models import build_model
from svtoolkit.optim import LearningRateSchedule, build_optimizer
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.training.history import History
from svtoolkit.training.loop import Plan, TrainingLoop
from svtoolkit.training.signals import ignore_stop_signals
from svtoolkit.training.step import OptimizerStep
from svtoolkit.training.validation import Validation

log = logging.getLogger(__name__)

CHECKPOINTS, LOGS, VALIDATION, CONFIG = "checkpoints", "logs", "validation", "config.yaml"

FREE_KEYS = {
    "exp_dir", "resume", "data.root", "data.num_workers", "trainer.device", "trainer.threads",
    "trainer.checkpoint_minutes", "trainer.checkpoint_steps", "trainer.keep_states", "trainer.keep_last",
    "trainer.keep_best", "trainer.nonfinite_patience", "trainer.log_steps",
}  # fmt: skip
"""Keys that may change when a run is resumed: none of them changes what is learnt."""


def train(config: TrainConfig) -> int | None:
    """Train as configured, going on where an earlier run in exp_dir stopped.

    Returns:
        None when the plan is finished, or the number of the signal that stopped it.

    Raises:
        UserError: data, configuration or disk are at fault.
    """
    exp_dir = Path(config.exp_dir)
    state = _find_state(config, exp_dir)
    with _log_file(exp_dir / LOGS), logging_redirect_tqdm([logging.getLogger()]):
        _seed_everything(config)
        experiment = Experiment(config)
        if state is not None:
            experiment.loop.restore(state)
            log.info("going on after step %d of %d", experiment.loop.finished_steps, experiment.plan.total_steps)
        history = History(exp_dir / LOGS, resume_step=experiment.loop.finished_steps)
        try:
            return experiment.loop.run(experiment.batches(), history)
        finally:
            history.close()


class Experiment:
    """All parts of a run, built from its configuration."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        settings = config.trainer
        self.device = choose_device(settings.device)
        autocast(self.device, settings.precision)  # refuses an unknown precision before any work
        kaldi_dir, validation_dir = self._split(KaldiDir.read(config.data.train, config.data.root))
        self.training_set = TrainingSet.build(kaldi_dir, speeds=config.data.speeds, min_seconds=config.data.min_seconds)
        micro_batch = settings.micro_batch or settings.batch_size
        if min(settings.epochs, settings.log_steps, settings.keep_states, settings.nonfinite_patience) < 1:
            raise UserError("trainer: epochs, log_steps, keep_states and nonfinite_patience must be 1 or more")
        self.sampler = BatchSampler(
            len(self.training_set),
            batch_size=settings.batch_size,
            micro_batch=micro_batch,
            seed=config.seed,
        )
        self.plan = self._plan()
        self.sampler.total_steps = self.plan.total_steps
        self.front_end = build_front_end(**asdict(config.features)).to(self.device)
        self.spec_augment = SpecAugment(
            config.augment.spec_probability,
            config.augment.time_masks,
            config.augment.time_width,
            config.augment.freq_masks,
            config.augment.freq_width,
        )
        self.step = self._build_step(micro_batch)
        self.loop = TrainingLoop(
            self.step,
            self.plan,
            settings,
            Path(config.exp_dir) / CHECKPOINTS,
            validate=self._validation(validation_dir),
            validate_every=config.validation.every_epochs,
            name_utterances=self._name_utterances,
            fingerprint=self.training_set.fingerprint(),
        )
        self._announce(micro_batch)

    def batches(self) -> Iterator[CropBatch]:
        """Micro-batches from the step on that the loop stands at."""
        config = self.config
        samples = self.front_end.num_samples(config.data.crop_frames)
        geometry = CropGeometry(config.features.sample_rate, samples, config.data.crop_frames, config.features.num_bins)
        dataset = CropDataset(
            self.training_set,
            geometry,
            self.spec_augment,
            dither=config.augment.dither,
            int16_scale=config.features.int16_scale,
            seed=config.seed,
            channel=config.data.channel,
            resample=config.data.resample,
        )
        self.sampler.start_step = self.loop.finished_steps
        loader = DataLoader(
            dataset,
            batch_sampler=self.sampler,
            collate_fn=collate_crops,
            num_workers=config.data.num_workers,
            worker_init_fn=_initialise_worker,
            prefetch_factor=4 if config.data.num_workers else None,
            pin_memory=self.device.type == "cuda",
        )
        return _with_plain_errors(loader)

    def _split(self, kaldi_dir: KaldiDir) -> tuple[KaldiDir, KaldiDir | None]:
        speakers = self.config.validation.speakers
        if not speakers:
            return kaldi_dir, None
        try:
            return split_speakers(kaldi_dir, eval_speakers=speakers, seed=self.config.seed)
        except UserError as error:
            raise UserError(f"validation.speakers is {speakers}: {error}; lower it (0: no validation)") from error

    def _plan(self) -> Plan:
        config = self.config
        steps = self.sampler.steps_per_epoch
        total = steps * config.trainer.epochs
        return Plan(
            steps,
            total,
            LearningRateSchedule(
                config.schedule.name,
                peak_lr=config.optim.lr,
                final_lr=config.schedule.final_lr,
                initial_lr=config.schedule.initial_lr,
                warmup_steps=config.schedule.warmup_epochs * steps,
                total_steps=total,
            ),
            MarginSchedule(
                config.margin_schedule.name,
                initial=config.margin_schedule.initial,
                final=config.loss.margin,
                start_step=config.margin_schedule.start_epoch * steps,
                end_step=config.margin_schedule.end_epoch * steps,
            ),
        )

    def _build_step(self, micro_batch: int) -> OptimizerStep:
        config = self.config
        network = build_model(num_bins=config.features.num_bins, **asdict(config.model))
        head = build_head(
            config.loss.name,
            embedding_dim=config.model.embedding_dim,
            num_classes=self.training_set.num_classes,
            margin=config.loss.margin,
            scale=config.loss.scale,
        )
        network, head = network.to(self.device), head.to(self.device)
        if config.trainer.channels_last:
            network = network.to(memory_format=torch.channels_last)
        parameters = [*network.parameters(), *head.parameters()]
        return OptimizerStep(
            self.front_end,
            network.train(),
            head,
            build_optimizer(parameters, **asdict(config.optim)),
            self.spec_augment,
            device=self.device,
            precision=config.trainer.precision,
            batch_size=config.trainer.batch_size,
            micro_batch=micro_batch,
            gradient_clip=config.trainer.gradient_clip,
        )

    def _validation(self, kaldi_dir: KaldiDir | None) -> Any:
        if kaldi_dir is None:
            return None
        config = self.config
        validation = Validation(
            kaldi_dir,
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
        rows = [self.training_set.entry(entry) for entry in entries[:10]]
        names = [f"{self.training_set.utterances[row].utterance_id} (speed {speed:g})" for row, speed, _ in rows]
        return ", ".join(names) + (f" and {len(entries) - 10} more" if len(entries) > 10 else "")

    def _announce(self, micro_batch: int) -> None:
        config, data = self.config, self.training_set
        weights = sum(parameter.numel() for parameter in self.step.network.parameters())
        held = f", {config.validation.speakers} more held out for validation" if config.validation.speakers else ""
        log.info("%s: %.2f M parameters, embedding of %d", config.model.name, weights / 1e6, config.model.embedding_dim)
        log.info(
            "%d utterances, %.2f h; %d speakers x %d speeds = %d classes%s",
            len(data.utterances), data.seconds.sum() / 3600,
            len(data.speakers), len(data.speeds), data.num_classes, held,
        )  # fmt: skip
        log.info(
            "effective batch %d = %d x %d accumulated; %d epochs x %d steps = %d; peak learning rate %g, as configured",
            config.trainer.batch_size, micro_batch, config.trainer.batch_size // micro_batch, config.trainer.epochs,
            self.plan.steps_per_epoch, self.plan.total_steps, config.optim.lr,
        )  # fmt: skip
        log.info("%s, %s, %d CPU threads", self.device, config.trainer.precision, torch.get_num_threads())


def _find_state(config: TrainConfig, exp_dir: Path) -> dict[str, Any] | None:
    """The state to go on from, once it is sure that the run in exp_dir is this one; writes config.yaml if it is new."""
    if config.resume not in ("auto", "never"):
        raise UserError(f"resume is {config.resume!r}, expected auto or never")
    saved = exp_dir / CONFIG
    states = list_states(exp_dir / CHECKPOINTS)
    if states and config.resume == "never":
        raise UserError(f"{exp_dir}: holds a run already and resume=never; choose another exp_dir, or resume=auto")
    content = asdict(config)
    if states and saved.is_file():
        _refuse_other_config(saved, content)
        found = load_latest_state(exp_dir / CHECKPOINTS)
        return found[1] if found else None
    with atomic_write(saved) as stream:
        yaml.safe_dump(content, stream, sort_keys=False)
    return None


def _refuse_other_config(saved: Path, content: dict[str, Any]) -> None:
    before = _flatten(yaml.safe_load(saved.read_text(encoding="utf-8")))
    now = _flatten(content)
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    changed = [key for key in changed if key not in FREE_KEYS]
    if changed:
        listed = ", ".join(f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in changed)
        raise UserError(
            f"{saved}: the run there has another configuration: {listed}; put it back or use another exp_dir"
        )


def _flatten(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(_flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def _seed_everything(config: TrainConfig) -> None:
    random.seed(config.seed)
    np.random.seed(config.seed)
    torch.manual_seed(config.seed)
    if config.trainer.threads is not None:
        if config.trainer.threads < 1:
            raise UserError(f"trainer.threads is {config.trainer.threads}, expected 1 or more, or null")
        torch.set_num_threads(config.trainer.threads)
    torch.backends.cudnn.deterministic = config.trainer.deterministic
    torch.backends.cudnn.benchmark = not config.trainer.deterministic


def _initialise_worker(worker: int) -> None:
    ignore_stop_signals()


def _with_plain_errors(loader: DataLoader[Any]) -> Iterator[CropBatch]:
    """A user's error that was raised in a worker comes wrapped in the worker's traceback: give its sentence alone."""
    try:
        yield from loader
    except UserError as error:
        raise UserError(str(error).rpartition("UserError: ")[2].strip()) from error


@contextmanager
def _log_file(folder: Path) -> Iterator[None]:
    """Everything logged while training goes to logs/train.log too."""
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / "train.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
