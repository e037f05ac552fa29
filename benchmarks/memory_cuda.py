"""What a GPU says: the allocator's own peak, the largest batch under a cap, time, and gradients bit for bit.

Everything but the calls of ``torch.cuda`` runs on the CPU, too, where tests put stand-ins in their place.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.memory_ledger import GIB
from benchmarks.step_time import compare_strategies, passes, synchronizer
from benchmarks.training_step import (
    BINS,
    FRAMES,
    REVERSIBLE,
    STORE,
    TrainingStep,
    build_network,
    set_strategy,
    strategies_of,
)
from svtoolkit.device import autocast
from svtoolkit.models import ChainNetwork

PRECISIONS = ("fp32", "fp16")
UTTERANCES = 16
"""n of the memory per utterance; more than in the ledger's, since the allocator takes memory in blocks of 2 MiB."""
PREDICTED_FROM = 8
"""Utterances of the second point of the line that foretells the largest batch."""
TIMED_BATCH = 16
EQUALITY_BATCH = 4
SWITCHES = ("deterministic", "benchmark", "tf32", "channels_last")


def reported_peak(run: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that the allocator had handed out at most while something ran; None: the GPU was too small for it."""
    release(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device) if runs(run, device) else None


def runs(run: Callable[[], object], device: torch.device) -> bool:
    """Whether something runs without running out of memory; what it leaves behind is given back where it does not."""
    try:
        run()
        synchronizer(device)()
        return True
    except torch.OutOfMemoryError:
        pass  # its traceback holds tensors: they can go only after it
    release(device)
    return False


def release(device: torch.device) -> None:
    """Give cached memory back to the GPU."""
    gc.collect()
    synchronizer(device)()
    torch.cuda.empty_cache()


@contextmanager
def capped(cap_bytes: float, device: torch.device) -> Iterator[None]:
    """The allocator behaves as if the GPU had no more memory than this."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def memory_per_utterance(name: str, device: torch.device) -> dict[str, Any]:
    """GiB per utterance of forward and backward pass of the network alone, by precision and strategy."""
    found: dict[str, dict[str, float | None]] = {}
    for precision, strategy in product(PRECISIONS, strategies_of(name)):
        peaks = {}
        for size in (1, UTTERANCES):
            # Weights and what cuDNN keeps once it has run are there in both; the first pass is for them.
            run = passes(
                build_network(name, strategy, device=device), torch.randn(size, FRAMES, BINS, device=device), precision
            )
            peaks[size] = reported_peak(run, device) if runs(run, device) else None
            del run
        one, more = peaks[1], peaks[UTTERANCES]
        slope = None if one is None or more is None else (more - one) / (UTTERANCES - 1) / GIB
        found.setdefault(precision, {})[strategy] = slope
    return {"utterances": UTTERANCES, "gib_per_utterance": found}


def largest_batches(name: str, optimizer: str, cap_bytes: float, device: torch.device) -> dict[str, Any]:
    """The largest batch whose whole training step fits under a cap, by precision, strategy and optimizer."""
    found: dict[str, dict[str, int]] = {}
    with capped(cap_bytes, device):
        for precision, strategy in product(PRECISIONS, strategies_of(name)):
            guess: int | None = None
            for chosen in (optimizer, f"{optimizer}_8bit"):
                steps = partial(
                    two_steps, name, strategy=strategy, optimizer=chosen, precision=precision, device=device
                )
                if guess is None:
                    guess = predicted_batch(steps, cap_bytes, device)
                guess = largest_batch(partial(fits, steps, device=device), guess)
                found.setdefault(precision, {})[f"{strategy}, {chosen}"] = guess
    return {"cap_bytes": int(cap_bytes), "largest_batch": found}


def two_steps(
    name: str, batch_size: int, *, strategy: str, optimizer: str, precision: str, device: torch.device
) -> None:
    """Two training steps, of which the second finds optimizer state."""
    step = TrainingStep(name, strategy, batch_size=batch_size, optimizer=optimizer, precision=precision, device=device)
    step()
    step()


def fits(steps: Callable[[int], object], batch_size: int, device: torch.device) -> bool:
    """Whether steps on a batch of this size run; nothing is left over from what ran before."""
    release(device)
    return runs(partial(steps, batch_size), device)


def predicted_batch(steps: Callable[[int], object], cap_bytes: float, device: torch.device) -> int:
    """Where the line through the peaks of a single utterance and of ``PREDICTED_FROM`` meets the cap."""
    one, more = (reported_peak(partial(steps, size), device) for size in (1, PREDICTED_FROM))
    if one is None or more is None:
        return 1
    slope = max(1.0, (more - one) / (PREDICTED_FROM - 1))
    return max(1, 1 + int((cap_bytes - one) / slope))


def largest_batch(fits: Callable[[int], bool], guess: int) -> int:
    """The largest size that fits, by bisection from a guess; 0: not even 1.

    Args:
        fits: true up to the size that is sought, false above.
        guess: the nearer, the fewer sizes are tried.
    """
    low, high = 0, 0  # fits and does not; 0: not known
    size, stride = max(1, guess), max(1, guess // 32)
    while high == 0 or high - low > 1:
        if fits(size):
            low = size
        else:
            high = size
        if high == 0:
            size, stride = size + stride, 2 * stride
        elif low == 0:
            size, stride = max(1, size - stride), 2 * stride
        else:
            size = (low + high) // 2
    return low


def step_times(
    name: str, rounds: int, device: torch.device, *, batch_size: int = TIMED_BATCH, frames: int = FRAMES
) -> dict[str, Any]:
    """Time of all strategies by precision; None where the stored activations do not fit the GPU."""
    found: dict[str, Any] = {}
    for precision in PRECISIONS:
        found[precision] = None

        def run(precision: str = precision) -> None:
            found[precision] = compare_strategies(
                name,
                rounds,
                strategies=strategies_of(name),
                batch_size=batch_size,
                frames=frames,
                precision=precision,
                device=device,
            )

        runs(run, device)
    return {"batch": batch_size, "by_precision": found}


def bit_equality(
    name: str, device: torch.device, *, frames: int = FRAMES, batch_size: int = EQUALITY_BATCH
) -> dict[str, Any]:
    """Gradients of the reversible network against stored activations, under all settings of ``SWITCHES``.

    Beside each stands whether stored activations give the same gradients twice: where they do not, recomputed ones
    cannot equal them.
    """
    features = torch.randn(batch_size, frames, BINS, generator=torch.Generator().manual_seed(0)).to(device)
    layouts = {last: build_network(name, STORE, channels_last=last, device=device) for last in (True, False)}
    rows = []
    for precision, setting in product(PRECISIONS, product((True, False), repeat=len(SWITCHES))):
        switches = dict(zip(SWITCHES, setting, strict=True))
        network = layouts[switches["channels_last"]]
        with cudnn_switched(switches):
            stored = _gradients(network, STORE, features, precision)
            again = _gradients(network, STORE, features, precision)
            reversible = _gradients(network, REVERSIBLE, features, precision)
        rows.append(
            {
                "precision": precision,
                **switches,
                "equal": _are_equal(stored, reversible),
                "stored_repeats_itself": _are_equal(stored, again),
                "relative_difference": relative_l2(reversible, stored),
            }
        )
    return {"batch": batch_size, "frames": frames, "settings": rows}


@contextmanager
def cudnn_switched(switches: dict[str, bool]) -> Iterator[None]:
    """cuDNN's choice of algorithms and TF32 as asked for; afterwards as before."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32)
    wanted = (switches["deterministic"], switches["benchmark"], switches["tf32"], switches["tf32"])
    try:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = wanted
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


def _gradients(network: ChainNetwork, strategy: str, features: Tensor, precision: str) -> list[Tensor]:
    set_strategy(network, strategy)
    network.zero_grad(set_to_none=True)
    with autocast(features.device, precision):
        embeddings = network(features)
    embeddings.square().mean().backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()]


def _are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def relative_l2(found: list[Tensor], expected: list[Tensor]) -> float:
    """Norm of the difference of two lists of tensors over the norm of the second, in float64."""
    difference = sum(
        float((one.double() - other.double()).square().sum()) for one, other in zip(found, expected, strict=True)
    )
    return (difference / sum(float(other.double().square().sum()) for other in expected)) ** 0.5
