"""What the networks of the registry are and need: sizes, work, memory; from their construction on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.measurement import measure_step
from svtoolkit.memory.operations import Operations
from svtoolkit.models import PooledNetwork, build_model
from svtoolkit.planning.network_facts import NetworkFacts, family_of
from svtoolkit.system.processes import count_cores, worker_processes

LARGE_BATCH = 2**17
"""Utterances whose activations dwarf weights and gradients."""

NETWORKS_A_PROCESS = 4
"""With fewer of them, another process would begin when the first is done."""


def survey_networks(names: Sequence[str], *, frames: int, num_bins: int) -> Iterator[NetworkFacts]:
    """Facts of the named networks in their order, as they come; many are shared out among processes.

    Raises:
        UserError: frames or num_bins below 1; a process was killed.
    """
    for key, value in (("frames", frames), ("num_bins", num_bins)):
        if value < 1:
            raise UserError(f"{key} is {value}, expected 1 or more")
    survey = partial(survey_network, frames=frames, num_bins=num_bins)
    processes = min(count_cores(), len(names) // NETWORKS_A_PROCESS)
    if processes < 2:
        yield from map(survey, names)
        return
    killed = "a process that surveys networks was killed, probably because memory ran out; name fewer networks"
    with worker_processes(processes, killed=killed) as workers:
        yield from workers.map(partial(_on_one_thread, survey), names)


def _on_one_thread(survey: Callable[[str], NetworkFacts], name: str) -> NetworkFacts:
    torch.set_num_threads(1)
    return survey(name)


def growth_of(model: Mapping[str, Any], strategy: str, *, frames: int) -> float:
    """Bytes that one more utterance of a large batch takes in a float32 training step of the network alone.

    Args:
        model: arguments of ``build_model``.
        strategy: what becomes of activations.
    """
    with QuickFakeTensorMode():
        network = build_model(**model).train()
        apply_strategy(network, strategy)
        utterances = torch.randn(LARGE_BATCH, frames, int(model.get("num_bins", 80)))
        report = measure_step([network], lambda: network(utterances).sum(), inputs=[utterances], warm_up=0)
    return report.peak_bytes / LARGE_BATCH


def survey_network(name: str, *, frames: int, num_bins: int) -> NetworkFacts:
    """Facts of one network for input of (frames, num_bins), all from one step on a large batch."""
    with QuickFakeTensorMode():
        network = build_model(name, num_bins=num_bins).train()
        strategy = apply_strategy(network)
        utterances = torch.randn(LARGE_BATCH, frames, num_bins)
        pooled: list[int] = []
        if isinstance(network, PooledNetwork):
            network.pooling.register_forward_hook(lambda module, inputs, output: pooled.append(output.shape[-1]))
        work = Operations()

        def forward() -> Tensor:
            with work:
                return network(utterances).sum()

        report = measure_step([network], forward, inputs=[utterances], warm_up=0)
    return NetworkFacts(
        name,
        family=family_of(name),
        layers=getattr(network, "layers", None),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        macs=work.count // 2 // LARGE_BATCH,
        pooled_dim=pooled[0] if pooled else None,
        embedding_dim=network.embedding_dim,
        strategy=strategy,
        bytes_per_utterance=report.peak_bytes / LARGE_BATCH,
    )


def measure_network_step(name: str, frames: int, num_bins: int, strategy: str, **options: Any) -> float:
    """Bytes that one more utterance of a large batch takes in a step of the network alone under a memory strategy.

    Args:
        options: further ones of the network.
    """
    with QuickFakeTensorMode():
        network = build_model(name, num_bins=num_bins, **options).train()
        apply_strategy(network, strategy)
        utterances = torch.randn(LARGE_BATCH, frames, num_bins)
        report = measure_step([network], lambda: network(utterances).sum(), inputs=[utterances], warm_up=0)
    return report.peak_bytes / LARGE_BATCH
