"""Part equality: gradients of strategies that recompute, against stored activations, bit for bit, by cuDNN's switches.

Beside each stands whether stored activations give the same gradients twice: where they do not, recomputed ones cannot
equal them.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.subjects import LAYOUTS, PRECISIONS, cudnn_switched, frames_of, key_of, strategies, strategy_config
from benchmarks.training_step import BINS, STORE, build_network
from svtoolkit.config import MemoryStrategyConfig
from svtoolkit.device import autocast
from svtoolkit.memory import apply_strategy
from svtoolkit.models import ChainNetwork

BATCH = 4
NETWORKS = ("revnet57", "df_revnet89", "resnet34")
SWITCHES = ("deterministic", "benchmark", "tf32")


def items(settings: Settings) -> Items:
    """Keys: network, strategy, precision. reversible of reversible networks first, the others after it."""
    networks = ("revnet_tiny",) if settings.tiny else NETWORKS
    pairs = [(network, "reversible") for network in networks if "revnet" in network]
    rest = [name for name in strategies() if name not in (STORE, "reversible", "stash8")]  # the last rounds
    pairs += list(product(networks, ["recompute_norm"] if settings.tiny else rest))
    for (network, strategy), precision in product(pairs, PRECISIONS):
        yield key_of(network, strategy, precision), partial(compare, network, strategy, precision, settings)


def compare(network: str, strategy: str, precision: str, settings: Settings) -> dict[str, Any]:
    """Under all settings of ``SWITCHES`` and both memory layouts; how many are equal, and the rows."""
    device, config = settings.device, strategy_config(strategy, precision, settings)
    stored_config = MemoryStrategyConfig(STORE)
    features = torch.randn(BATCH, frames_of(settings), BINS, generator=torch.Generator().manual_seed(0)).to(device)
    rows = []
    for channels_last in LAYOUTS:
        built = build_network(network, STORE, channels_last=channels_last, device=device)
        for setting in product((True, False), repeat=len(SWITCHES)):
            switches = dict(zip(SWITCHES, setting, strict=True))
            with cudnn_switched(**switches):
                stored = gradients(built, stored_config, features, precision)
                again = gradients(built, stored_config, features, precision)
                found = gradients(built, config, features, precision)
            rows.append(
                {
                    **switches,
                    "channels_last": channels_last,
                    "equal": are_equal(stored, found),
                    "stored_repeats_itself": are_equal(stored, again),
                    "relative_difference": relative_l2(found, stored),
                }
            )
    return {
        "settings": len(rows),
        "equal": sum(row["equal"] for row in rows),
        "stored_repeats_itself": sum(row["stored_repeats_itself"] for row in rows),
        "rows": rows,
    }


def gradients(network: ChainNetwork, strategy: MemoryStrategyConfig, features: Tensor, precision: str) -> list[Tensor]:
    """Of all weights, under a strategy of the package."""
    apply_strategy(network, **asdict(strategy))
    network.zero_grad(set_to_none=True)
    with autocast(features.device, precision):
        embeddings = network(features)
    embeddings.square().mean().backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()]


def are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def relative_l2(found: list[Tensor], expected: list[Tensor]) -> float:
    """Norm of the difference of two lists of tensors over the norm of the second, in float64."""
    difference = sum(
        float((one.double() - other.double()).square().sum()) for one, other in zip(found, expected, strict=True)
    )
    return (difference / sum(float(other.double().square().sum()) for other in expected)) ** 0.5
