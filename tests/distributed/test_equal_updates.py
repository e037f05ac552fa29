"""One step, however it is divided: over processes, over micro-batches, over both; float64, on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
from forked import free_port, run_group
from tiny_runs import tiny_config

from svtoolkit.config import AngularPrototypicalConfig, PlannedConfig, TrainConfig
from svtoolkit.distributed.rank import Rank
from svtoolkit.distributed.world import ALONE, CPU, World, process_group
from svtoolkit.training.experiment import Experiment

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)


class Division(NamedTuple):
    """Of an effective batch of 8: processes, crops that each has in memory at once, whether the head is sharded, and
    whether crops of a class are compared within their micro-batch.

    ``times`` are those of the plan under which activations are recomputed; None: they are stored.
    """

    processes: int
    micro_batch: int
    shard: bool = False
    times: float | None = None
    pairs: bool = False


PAIRS = "1 x 4 accumulated, pairs"
DIVISIONS = {
    "1 x 8": Division(1, 8),
    "2 x 4": Division(2, 4),
    "4 x 2": Division(4, 2),
    "1 x 4 accumulated": Division(1, 2),
    "2 x 2 accumulated": Division(2, 2),
    "4 x 2 and a sharded head": Division(4, 2, shard=True),
    "2 x 4, planned": Division(2, 4, times=1.3),
    "2 x 2 accumulated, a sharded head, planned": Division(2, 2, shard=True, times=1.3),
    PAIRS: Division(1, 4, pairs=True),
    "2 x 4, pairs": Division(2, 4, pairs=True),
    "2 x 4 and a sharded head, pairs": Division(2, 4, shard=True, pairs=True),
}


def config_of(speech: Path, exp_dir: Path, division: Division) -> TrainConfig:
    """Six steps of a warm-up and a growing margin; no clipping, which would hide a gradient of another length."""
    changes = {"trainer__micro_batch": division.micro_batch, "loss__shard": division.shard, "data__speeds": [1.0]}
    config = tiny_config(speech, exp_dir, trainer__epochs=1, validation__speakers=0, **changes)
    if division.times is not None:
        config.memory = PlannedConfig("planned", times=division.times)
    if division.pairs:
        config.pairwise = AngularPrototypicalConfig("angular_prototypical")
    return config


def trained(config: TrainConfig, world: World) -> dict[str, torch.Tensor]:
    """All weights after the run.

    BatchNorm keeps to the statistics that it was made with: those of micro-batches differ, as is documented.
    """
    experiment = Experiment(config, world)
    experiment.step.network.eval()
    experiment.front_end.register_forward_hook(lambda module, inputs, features: features.double())
    batches = experiment.batches()
    assert experiment.loop.run(batches, None) is None
    batches.close()
    assert experiment.loop.nonfinite_steps == 0
    whole = experiment.step.head.gather_head_state()
    named = {**dict(experiment.step.network.named_parameters()), **{f"head.{name}": whole[name] for name in whole}}
    if experiment.step.pairwise is not None:
        named |= {f"pairwise.{name}": tensor for name, tensor in experiment.step.pairwise.state_dict().items()}
    if config.loss.shard and not world.is_first:
        del named["head.weight"]  # the first process has gathered it
    return named


def work(rank: int, ports: Sequence[int], speech: Path, folder: Path) -> None:
    """One of four processes: in every division that has a place for it."""
    torch.set_default_dtype(torch.float64)
    for port, (name, division) in zip(ports, DIVISIONS.items(), strict=True):
        size = division.processes
        if rank >= size:
            continue
        torch.manual_seed(7)
        config = config_of(speech, folder / name, division)
        if size == 1:
            weights = trained(config, ALONE)
        else:
            os.environ["MASTER_PORT"] = str(port)
            with process_group(Rank(rank, size, rank, size), CPU, name) as world:
                weights = trained(config, world)
        torch.save(weights, folder / f"{name}, process {rank}.pt")


@pytest.fixture(scope="module")
def folder(speech: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every process left the weights that it ended with."""
    folder = tmp_path_factory.mktemp("divisions")
    run_group(work, 4, [free_port() for _ in DIVISIONS], speech, folder)
    return folder


@pytest.mark.parametrize("name", [name for name in DIVISIONS if name not in ("1 x 8", PAIRS)])
def test_every_weight_is_that_of_one_process_with_the_whole_batch(name, folder):
    """Or with the same micro-batches, where crops are compared within them."""
    expected = torch.load(folder / f"{PAIRS if DIVISIONS[name].pairs else '1 x 8'}, process 0.pt")
    for rank in range(DIVISIONS[name].processes):
        found = torch.load(folder / f"{name}, process {rank}.pt")
        assert expected.keys() - found.keys() <= ({"head.weight"} if DIVISIONS[name].shard and rank else set())
        for weight, tensor in found.items():
            assert tensor.dtype == torch.float64
            torch.testing.assert_close(tensor, expected[weight], rtol=1e-9, atol=1e-11, msg=f"{weight} of {rank}")


def test_the_weights_have_moved(folder, speech):
    """Or all would be equal whatever a step does."""
    torch.manual_seed(7)
    before = Experiment(config_of(speech, folder / "before", DIVISIONS["1 x 8"])).step
    expected = torch.load(folder / "1 x 8, process 0.pt")
    for name, weight in before.network.named_parameters():
        assert not torch.allclose(expected[name].float(), weight, rtol=1e-4, atol=1e-6), name
    assert torch.load(folder / f"{PAIRS}, process 0.pt")["pairwise.scale"] != 10.0
