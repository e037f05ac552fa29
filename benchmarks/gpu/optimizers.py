"""Part optimizers: 8-bit state by svtoolkit and by bitsandbytes against 32 bits.

All optimizers step copies of the same weights by the same random gradients, contiguous ones and, as the trainer has
them, in channels_last. Then follow the distance between weights that should be alike, as a share of the way that they
have gone; the bytes of the state; and the time of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu.parts import Items, LeftOutError, Settings
from benchmarks.gpu.subjects import LAYOUTS, seconds_of
from benchmarks.quantisation import ADAMW, SGD, state_bytes
from benchmarks.training_step import STORE, build_network
from svtoolkit.optim import build_optimizer

NETWORK = "resnet152"
STEPS = 50
NO_BITSANDBYTES = "bitsandbytes is not installed; pip install 'bitsandbytes>=0.50'"

IN_32_BITS, AS_SHIPPED, OURS, THEIRS = "32 bits", "torch, 2048", "torch, 256", "bitsandbytes, 256"
VARIANTS: dict[str, dict[str, Any] | None] = {
    IN_32_BITS: None,
    AS_SHIPPED: {"backend": "torch", "block_size": 2048, "min_8bit_size": 4096},
    OURS: {"backend": "torch", "block_size": 256, "min_8bit_size": 4096},
    THEIRS: {"backend": "bitsandbytes", "block_size": 256, "min_8bit_size": 4096},
}
"""Momentum without Nesterov, as bitsandbytes has it. In channels_last other values share a scale in the last two: those
that are neighbours by the shape, and those that are in memory."""
NUMBERS = {"sgd": SGD, "adamw": ADAMW}


def items(settings: Settings) -> Items:
    """Keys: optimizer, variant, layout."""
    for optimizer in NUMBERS:
        for layout, name in LAYOUTS.items():
            for variant in VARIANTS:
                yield f"{optimizer}, {variant}, {name}", partial(measure, optimizer, variant, layout, settings)


def measure(optimizer: str, variant: str, channels_last: bool, settings: Settings) -> dict[str, Any]:
    """Bytes a parameter, distance from the 32-bit optimizer, whether weights keep their layout, seconds of a step."""
    if variant == THEIRS and find_spec("bitsandbytes") is None:
        raise LeftOutError(NO_BITSANDBYTES)
    network = build_network(
        "resnet10" if settings.tiny else NETWORK, STORE, channels_last=channels_last, device=settings.device
    )
    begin = [weight.detach() for weight in network.parameters()]
    own, reference = (_stepped(optimizer, each, begin, settings) for each in (variant, IN_32_BITS))
    weights, stepped = own
    return {
        "bytes_per_parameter": round(state_bytes(stepped) / sum(weight.numel() for weight in begin), 4),
        "distance_by_way": distance_by_way(begin, reference[0], weights),
        "layout_kept": all(one.stride() == other.stride() for one, other in zip(weights, begin, strict=True)),
        **seconds_of(stepped.step, settings),
    }


def _stepped(
    optimizer: str, variant: str, begin: Sequence[Tensor], settings: Settings
) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    """Copies of weights after some steps by random gradients, which are the same for every variant."""
    own = VARIANTS[variant]
    weights = [nn.Parameter(weight.clone()) for weight in begin]
    built = build_optimizer(
        weights, optimizer if own is None else f"{optimizer}_8bit", **NUMBERS[optimizer], **(own or {})
    )
    generator = torch.Generator(settings.device).manual_seed(0)
    for _ in range(2 if settings.tiny else STEPS):
        for weight in weights:
            weight.grad = 1e-3 * torch.empty_like(weight).normal_(generator=generator)
        built.step()
    return weights, built


def distance_by_way(begin: Sequence[Tensor], one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Norm of the difference of two lists of weights over that of the way that the first have gone."""
    apart, way = (
        sum(float((a - b).detach().double().square().sum()) for a, b in zip(one, others, strict=True))
        for others in (other, begin)
    )
    return float(f"{(apart / way) ** 0.5:.4g}")
