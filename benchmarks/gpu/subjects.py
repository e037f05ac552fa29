"""What is measured: networks under every memory strategy that the package has, as whole training steps."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import torch

from benchmarks.gpu.parts import Settings
from benchmarks.step_time import synchronizer
from benchmarks.training_step import BINS, FRAMES, TrainingStep
from svtoolkit.config import MemoryStrategyConfig
from svtoolkit.memory.registry import STRATEGIES

NETWORKS = ("resnet34", "revnet57", "df_revnet89", "revnet197", "resnet152", "df_resnet56")
TINY_NETWORKS = ("resnet10", "revnet_tiny")
PRECISIONS = ("fp32", "fp16", "bf16")
LAYOUTS = {True: "channels_last", False: "contiguous"}


def networks_of(settings: Settings) -> tuple[str, ...]:
    return TINY_NETWORKS if settings.tiny else NETWORKS


def strategies() -> list[str]:
    """All that the package lists, those of installed packages among them."""
    return list(STRATEGIES)


def strategy_config(name: str, precision: str, settings: Settings | None = None) -> MemoryStrategyConfig:
    """The strategy as a run with `memory=name` has it: one that is made for crops is told theirs."""
    own = STRATEGIES[name].settings or MemoryStrategyConfig
    crops = {"frames": frames_of(settings), "num_bins": BINS, "precision": precision}
    return own(name, **{key: value for key, value in crops.items() if key in own.__dataclass_fields__})


def frames_of(settings: Settings | None) -> int:
    return 16 if settings is not None and settings.tiny else FRAMES


def combinations(networks: tuple[str, ...], precisions: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Network, strategy, precision; those of a network together."""
    yield from product(networks, strategies(), precisions)


def key_of(*words: str) -> str:
    """Of a record."""
    return ", ".join(words)


def build_step(
    network: str,
    strategy: str,
    precision: str,
    settings: Settings,
    *,
    batch_size: int,
    optimizer: str = "sgd",
    channels_last: bool = True,
) -> TrainingStep:
    """A whole training step on crops of 200 frames, over as many classes as VoxCeleb2 has at three speeds.

    Raises:
        UserError: the strategy is none for the network.
    """
    small = {"classes": 20} if settings.tiny else {}
    return TrainingStep(
        network,
        strategy_config(strategy, precision, settings),
        batch_size=2 if settings.tiny else batch_size,
        optimizer=optimizer,
        precision=precision,
        device=settings.device,
        channels_last=channels_last,
        frames=frames_of(settings),
        **small,
    )


@contextmanager
def cudnn_switched(*, deterministic: bool, tf32: bool | None = None, benchmark: bool | None = None) -> Iterator[None]:
    """cuDNN's switches as `trainer.deterministic` sets them, unless told otherwise; afterwards as before."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32)
    try:
        cudnn.deterministic, cudnn.benchmark = deterministic, not deterministic if benchmark is None else benchmark
        if tf32 is not None:
            cudnn.allow_tf32 = matmul.allow_tf32 = tf32
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


def seconds_of(run: Callable[[], object], settings: Settings, *, most: float = 1.0) -> dict[str, float]:
    """Fastest and median of ``settings.rounds`` runs after two that do not count, or of those that take ``most``
    seconds.
    """
    wait = synchronizer(settings.device)
    for _ in range(1 if settings.tiny else 2):  # cuDNN chooses, memory is taken
        run()
    wait()
    gc.collect()
    taken: list[float] = []
    while len(taken) < settings.rounds and (not taken or sum(taken) < most):
        begin = time.perf_counter()
        run()
        wait()
        taken.append(time.perf_counter() - begin)
    return {"fastest_s": round(min(taken), 6), "median_s": round(sorted(taken)[len(taken) // 2], 6)}
