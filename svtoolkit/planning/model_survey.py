"""What the networks of the registry are and need: sizes, work, memory; from their construction on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.measurement import measure_step
from svtoolkit.models import ChainNetwork, build_model, list_models
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.operations import Operations
from svtoolkit.system.processes import count_cores, worker_processes

LARGE_BATCH = 2**17
"""Utterances whose activations dwarf weights and gradients."""

NETWORKS_A_PROCESS = 4
"""With fewer of them, another process would begin when the first is done."""


@dataclass(frozen=True)
class NetworkFacts:
    """One network of the registry, with everything as published.

    Attributes:
        family: what its row says of it: ResNet, DF-ResNet, RevNet or DF-RevNet of ours.
        layers: convolutions of the main path and the last Linear; None where the network does not say.
        parameters: weights, without a head over speakers.
        macs: multiplications with addition in the convolutions and products of one utterance.
        pooled_dim: size of what pooling hands to the embedding layer; None: the network is no chain.
        embedding_dim: size of the embedding.
        strategy: memory strategy that memory=auto chooses: store or reversible.
        bytes_per_utterance: memory that one more utterance of a large batch takes in a float32 training step of the
            network alone under that strategy.
    """

    name: str
    family: str
    layers: int | None
    parameters: int
    macs: int
    pooled_dim: int | None
    embedding_dim: int
    strategy: str
    bytes_per_utterance: float


def match_names(patterns: Sequence[str]) -> list[str]:
    """Names of the registry that match any of the patterns (``revnet*``), in the registry's order; without any, all.

    Raises:
        UserError: a pattern that matches no name.
    """
    names = list_models()
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            NETWORKS[pattern]  # which says so
    return [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


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


def family_of(name: str) -> str:
    """What the row of a network says of it: ResNet, DF-ResNet, RevNet or DF-RevNet of ours."""
    return NETWORKS[name].help or "-"


def _on_one_thread(survey: Callable[[str], NetworkFacts], name: str) -> NetworkFacts:
    torch.set_num_threads(1)
    return survey(name)


def survey_network(name: str, *, frames: int, num_bins: int) -> NetworkFacts:
    """Facts of one network for input of (frames, num_bins), all from one step on a large batch."""
    with FakeTensorMode():
        network = build_model(name, num_bins=num_bins).train()
        strategy = apply_strategy(network)
        utterances = torch.randn(LARGE_BATCH, frames, num_bins)
        pooled: list[int] = []
        if isinstance(network, ChainNetwork):
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
