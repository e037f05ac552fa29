"""What a run would take, said without beginning it: nothing is written."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import torch

from svtoolkit.config import TrainConfig
from svtoolkit.crops.batch_size import choose_batch_size
from svtoolkit.crops.class_tuples import tuple_size
from svtoolkit.crops.sampler import BatchSampler, share_of
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.device import autocast, choose_device, synchronize
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.run_forecast import GPU_BYTES, GPU_RATE, SECONDS_A_DAY, RunForecast, forecast_run
from svtoolkit.training.distillation import read_teacher
from svtoolkit.training.fitting import GIB, gpu_memory_bytes, try_pass
from svtoolkit.training.settings import check_settings, micro_batch_of
from svtoolkit.training.setup import seed_everything
from svtoolkit.training.step import OptimizerStep
from svtoolkit.training.two_stages import enter_stage

log = logging.getLogger(__name__)

DAYS = 5
"""For which it is said how many epochs end in them."""

CROPS_ON_CPU = 4
"""Of a pass that is timed on the CPU, where a crop takes as long in a batch as alone."""

PASSES, SECONDS = 3, 2.0
"""At least so many passes are timed, and for so long."""


def dry_run(config: TrainConfig) -> RunForecast:
    """Log what the run would take: steps, memory, disk, and days at the speed of a few passes on its device.

    Raises:
        UserError: as ``train``, for data or configuration at fault.
    """
    devices = config.trainer.devices
    check_settings(config, devices)
    device = choose_device(config.trainer.device, "trainer.device")
    autocast(device, config.trainer.precision)  # refuses what the device cannot do
    seed_everything(config)
    data = TrainingData(config)
    entries = len(data.training_set)
    batch_size = choose_batch_size(config.trainer, entries, devices, tuple_size(config.pairwise))
    sampler = BatchSampler(
        entries,
        batch_size=batch_size,
        micro_batch=micro_batch_of(config.trainer, share_of(batch_size, devices)),
        seed=config.seed,
        processes=devices,
        tuples=data.tuples(),
    )
    steps = sampler.steps_per_epoch * config.trainer.epochs
    classes = data.training_set.num_classes
    config, _, _ = enter_stage(config, None, num_classes=classes, steps_per_epoch=sampler.steps_per_epoch)
    data.announce()
    forecast = forecast_run(config, steps, batch_size, data.training_set.num_classes)
    log.info(
        "%d epochs x %d steps of %d crops = %d steps, %.3g EFLOP; %.2f GiB of states and epochs in %s",
        config.trainer.epochs, sampler.steps_per_epoch, batch_size, steps,
        forecast.all_operations / 1e18, forecast.disk_bytes / GIB, config.exp_dir,
    )  # fmt: skip
    limit = gpu_memory_bytes(device)
    rate = _measure_rate(config, data, forecast, device)
    # Processes on the CPU share its cores.
    _log_device(forecast, limit, rate, devices if limit else 1, f"{device}, {rate / 1e12:.3g} TFLOPS measured here")
    if limit is None:
        of = f"2080 Ti, {GPU_RATE / 1e12:g} TFLOPS assumed, half of what it can do in float32"
        _log_device(forecast, GPU_BYTES, GPU_RATE, devices, of)
    log.info("nothing was written: leave out --dry-run to train")
    return forecast


def _log_device(forecast: RunForecast, limit: int | None, rate: float, devices: int, name: str) -> None:
    log.info(
        "on %s%s: %s; %d crops at once need %.1f GiB%s",
        f"{devices} x " if devices > 1 else "", name, _duration(forecast.seconds(rate, devices)),
        forecast.micro_batch(limit), forecast.peak_bytes(limit) / GIB, f" of {limit / GIB:.1f}" if limit else "",
    )  # fmt: skip
    epochs = forecast.epochs_within(DAYS * SECONDS_A_DAY, rate, devices)
    if epochs < forecast.epochs:
        remedy = f"trainer.epochs={epochs} shortens all schedules, too" if epochs else "choose a smaller network"
        log.info("  in %d days %d of %d epochs end: %s", DAYS, epochs, forecast.epochs, remedy)


def _duration(seconds: float) -> str:
    if seconds >= SECONDS_A_DAY:
        return f"{seconds / SECONDS_A_DAY:.1f} days"
    return f"{seconds / 3600:.1f} h" if seconds > 7200 else f"{seconds / 60:.1f} minutes"


def _measure_rate(config: TrainConfig, data: TrainingData, forecast: RunForecast, device: torch.device) -> float:
    """Operations a second of forward and backward passes on noise, the fastest of a few."""
    front_end = front_end_of(config.features).to(device)
    samples, frames = front_end.crop_size(config.data.crop_frames)
    network, head, optimizer, _ = build_trainable(
        config.model, config.memory, replace(config.loss, shard=False), config.optim,
        num_bins=config.features.num_bins, num_classes=data.training_set.num_classes, device=device,
        channels_last=config.trainer.channels_last, frames=frames, precision=config.trainer.precision,
    )  # fmt: skip
    crops = forecast.micro_batch(gpu_memory_bytes(device))
    crops = crops if device.type == "cuda" else min(crops, CROPS_ON_CPU)
    step = OptimizerStep(
        front_end, network, head, optimizer, data.spec_augment, device=device, precision=config.trainer.precision,
        batch_size=crops, micro_batch=crops, gradient_clip=None,
        teacher=read_teacher(config, device, samples=samples, stored=data.stored is not None),
    )  # fmt: skip
    times: list[float] = []
    while len(times) < PASSES or sum(times) < SECONDS:
        begin = time.perf_counter()
        try_pass(step, samples, crops)
        synchronize(device)
        times.append(time.perf_counter() - begin)
    return forecast.operations * crops / min(times)
