"""Recomputed chains in distributed training: two processes, gloo, on the CPU."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked import run_group
from torch import Tensor, nn

from svtoolkit.memory import apply_strategy
from svtoolkit.models import SpeakerNetwork
from svtoolkit.models.revnet import build_df_revnet, build_revnet
from svtoolkit.models.revnext import build_revnext
from svtoolkit.reversible import AdditiveCoupling

pytestmark = [
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SMALL = {"block": "basic", "channels": (8, 8, 8, 8)}
BUILDERS = {
    "type I": partial(build_revnet, kind="I", blocks=(2, 2, 1, 1), **SMALL),
    "type II": partial(build_revnet, kind="II", blocks=(2, 1, 1, 1), **SMALL),
    "depth first": partial(build_df_revnet, kind="II", blocks=(2, 1, 1, 1), channels=(16, 16, 16, 16)),
    "layer by layer": partial(build_revnext, width=8, blocks=(2, 1, 1, 1), slope=0.1, norm_floor=0.1),
}
WAYS = {
    "plain": {},
    "find_unused_parameters": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
}
SHARDED = ("whole network", "stages")
WAYS_OF = {
    "type I": (*WAYS, *SHARDED),
    "type II": ("plain", "find_unused_parameters", "stages"),
    "depth first": ("static_graph", "whole network"),
    "layer by layer": ("plain", "whole network"),
}
"""All for one network, and each for another beside it."""
STRATEGIES = ("store", "reversible")
STEPS, RANKS = 2, 2


def network(name: str) -> SpeakerNetwork:
    torch.manual_seed(0)
    return BUILDERS[name](num_bins=16, embedding_dim=8).double().train()


def utterances(rank: int) -> Tensor:
    return torch.randn(4, 24, 16, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def loss_of(module: nn.Module, rank: int) -> Tensor:
    return module(utterances(rank)).square().sum()


def trained_alone(name: str) -> list[Tensor]:
    """With stored activations in one process: the mean gradient of what the ranks see, each rank's own BatchNorm."""
    net = network(name)
    apply_strategy(net, "store")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for rank in range(RANKS):
            (loss_of(net, rank) / RANKS).backward()
        optimizer.step()
    return [parameter.detach() for parameter in net.parameters()]


def train(rank: int, folder: Path) -> None:
    """All cases in one pair of processes."""
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    try:
        results = {(name, way): train_in(way, rank, name) for name in BUILDERS for way in WAYS_OF[name]}
        for name, strategy in product(BUILDERS, STRATEGIES):
            results[name, strategy] = train_in("plain", rank, name, strategy, torch.float32)
        try:
            train_in("parts of a stage", rank, "type II")
            refusal = ""
        except RuntimeError as error:
            refusal = str(error)
    finally:
        dist.destroy_process_group()
    if rank == 0:
        torch.save((results, refusal), folder / "results.pt")


def train_in(
    way: str, rank: int, name: str, strategy: str = "auto", dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    net = network(name).to(dtype)
    apply_strategy(net, strategy)
    module: nn.Module = net
    if way in WAYS:
        module = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False, **WAYS[way])
    else:
        shard(net, way)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        module(utterances(rank).to(dtype)).square().sum().backward()
        optimizer.step()
    return [whole(parameter).detach() for parameter in net.parameters()]


def shard(net: SpeakerNetwork, way: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    couplings = [module for module in net.stages[0].modules() if isinstance(module, AdditiveCoupling)]
    parts = {"whole network": [], "stages": list(net.stages), "parts of a stage": couplings}[way]
    for part in parts:
        fully_shard(part, mesh=mesh)
    fully_shard(net, mesh=mesh)


def whole(parameter: Tensor) -> Tensor:
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[tuple[str, str], list[Tensor]], str]:
    """Weights of every network after every way of training, and what the refused way said."""
    folder = tmp_path_factory.mktemp("distributed")
    run_group(train, RANKS, folder)
    return torch.load(folder / "results.pt")


@pytest.mark.parametrize("name", BUILDERS)
def test_data_parallel_and_sharded_training_equal_stored_activations_in_one_process(name: str, trained) -> None:
    expected = trained_alone(name)
    for way in WAYS_OF[name]:
        for got, want in zip(trained[0][name, way], expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12, msg=lambda text, way=way: f"{way}: {text}")


@pytest.mark.parametrize("name", BUILDERS)
def test_data_parallel_training_in_float32_is_that_of_stored_activations_to_the_bit(name: str, trained) -> None:
    stored, found = (trained[0][name, strategy] for strategy in STRATEGIES)
    assert all(map(torch.equal, found, stored))
    assert {parameter.dtype for parameter in found} == {torch.float32}


def test_parts_of_a_stage_cannot_be_sharded(trained) -> None:
    assert "apply fully_shard to whole stages or to the whole network" in trained[1]
