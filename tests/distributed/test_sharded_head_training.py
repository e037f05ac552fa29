"""Runs with a sharded head against runs whose head is whole: two processes on the CPU."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from forked import run_group
from tiny_runs import assert_same_run, read_records, read_run, tiny_config

from svtoolkit.config import SGD8bitConfig, SGDConfig, TrainConfig
from svtoolkit.distributed.class_shards import shard_classes
from svtoolkit.distributed.head_sharding import check_optimizer, shard_head
from svtoolkit.distributed.rank import Rank
from svtoolkit.distributed.sharded_head import ShardedHead
from svtoolkit.distributed.world import CPU, World, process_group
from svtoolkit.errors import UserError
from svtoolkit.losses import build_head
from svtoolkit.runs.full_state import list_states, read_verified
from svtoolkit.runs.history import History
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.initialisation import Start

needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)

OPTIMIZERS = ("sgd", "adamw", "muon", "sgd_8bit", "muon_8bit")
STOP_AT = 5
EARLY = {"sgd": 6, "adamw": 6, "muon": 3, "sgd_8bit": 3, "muon_8bit": 3}
"""Steps in which rounding has not yet grown: then a ReLU falls to the other side of 0, or a moment to the next of its
codes, and BatchNorm over two crops makes much of it.
"""


def config_of(speech: Path, folder: Path, name: str, optim: str, *, shard: bool) -> TrainConfig:
    """One epoch, of micro-batches, with clipping that bites, and a number of classes that two cannot divide equally."""
    changes = {
        "trainer__micro_batch": 2,
        "trainer__gradient_clip": 0.5,
        "trainer__epochs": 1,
        "trainer__keep_states": 9,
        "schedule__warmup": 0.5,  # early steps are small: rounding has not grown yet where states are compared
        "margin_schedule__start": 0.5,
        "model__base_width": 16,
    }
    changes |= {"validation__speakers": 3} | ({"optim__min_8bit_size": 90} if "8bit" in optim else {})
    return tiny_config(speech, folder / f"{name} {optim}", optim, loss__shard=shard, trainer__devices=2, **changes)


def stopping(config: TrainConfig, world: World) -> int | None:
    """Train until a signal reaches the first process after a step."""
    add = History.add

    def stop(history: History, record: dict[str, Any]) -> None:
        add(history, record)
        if record["step"] == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)

    History.add = stop  # type: ignore[method-assign]
    try:
        return train(config, world)
    finally:
        History.add = add  # type: ignore[method-assign]


def all_runs(speech: Path, folder: Path, world: World) -> list[int | None]:
    """Returns how those ended that were to be stopped or went on from a state."""
    for optim in OPTIMIZERS:
        train(config_of(speech, folder, "whole", optim, shard=False), world)
        train(config_of(speech, folder, "sharded", optim, shard=True), world)
    config = config_of(speech, folder, "stopped", "sgd_8bit", shard=True)
    ends = [stopping(config, world), train(config, world)]
    for optim, shard in (("adamw", True), ("sgd", False)):
        config = config_of(speech, folder, "resumed", optim, shard=shard)
        if world.is_first:
            as_after_six_steps(folder / f"sharded {optim}", Path(config.exp_dir))
        world.barrier()
        ends.append(train(config, world))
    return ends


def as_after_six_steps(run: Path, exp_dir: Path) -> None:
    """A copy of a run that was killed after the sixth of its steps."""
    shutil.copytree(run, exp_dir)
    config = (exp_dir / "config.yaml").read_text()
    (exp_dir / "config.yaml").write_text(config.replace(str(run), str(exp_dir)))
    for state in list_states(exp_dir / "checkpoints"):
        if int(state.stem.removeprefix("state-")) > 6:
            state.unlink()


def overflowing_step(speech: Path, folder: Path, world: World, precision: str) -> dict[str, Any]:
    """A step in which the shard of the second process gets a gradient that is not finite."""
    changes = {"loss__shard": True, "trainer__precision": precision, "validation__speakers": 0}
    torch.manual_seed(3)
    experiment = Experiment(tiny_config(speech, folder / precision, **changes), world)
    step = experiment.step
    if world.rank == 1:
        step.head.local.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = [parameter.detach().clone() for parameter in step.parameters]
    batches = experiment.batches()
    result = step(batches)
    batches.close()
    is_same = all(torch.equal(*pair) for pair in zip(before, step.parameters, strict=True))
    return {"entries": result.nonfinite_entries, "is same": is_same, "scale": step.scaler.get_scale()}


def work(rank: int, speech: Path, folder: Path) -> None:
    """Everything in one pair of processes."""
    with process_group(Rank(rank, 2, rank, 2), CPU, "the test") as world:
        results = {
            "ends": [end and int(end) for end in all_runs(speech, folder, world)],
            "steps": {kind: overflowing_step(speech, folder, world, kind) for kind in ("fp32", "fp16")},
        }
    torch.save(results, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def runs(speech: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all runs, and of what each process had to say."""
    folder = tmp_path_factory.mktemp("runs")
    run_group(work, 2, speech, folder)
    return folder


def assert_close(found: Any, expected: Any, path: str, **tolerance: float) -> None:
    """The same nest of plain data, numbers and tensors up to rounding."""
    assert type(found) is type(expected), path
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key, value in expected.items():
            assert_close(found[key], value, f"{path}/{key}", **tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert_close(*pair, f"{path}/{number}", **tolerance)
    elif path.endswith("_codes"):
        assert found.shape == expected.shape
        assert (found.int() - expected.int()).abs().double().mean() < 0.5, path
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, **tolerance, msg=lambda text: f"{path}: {text}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance["rtol"], abs=tolerance["atol"]), path
    else:
        assert found == expected, path


def assert_close_runs(ours: Path, theirs: Path, steps: int) -> None:
    """State and history after so many steps, and the course of the rest."""
    early = [read_verified(run / "checkpoints" / f"state-{steps:010d}.pt") for run in (ours, theirs)]
    for state in early:
        del state["facts"]["seconds"], state["meters"]
    assert_close(*early, ours.name, rtol=1e-4, atol=1e-4)
    histories = [read_records(run) for run in (ours, theirs)]
    assert_close(histories[0][:steps], histories[1][:steps], ours.name, rtol=1e-5, atol=1e-5)
    assert [record["step"] for record in histories[0]] == [record["step"] for record in histories[1]]
    for found, expected in zip(*histories, strict=True):
        assert found["loss"] == pytest.approx(expected["loss"], rel=0.02)


@needs_gloo
@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_weights_history_and_state_are_those_of_the_whole_head(optim, runs):
    ours, theirs = (read_run(runs / f"{name} {optim}") for name in ("sharded", "whole"))
    assert ours["weights"].keys() == theirs["weights"].keys() != set()
    assert ours["step"] == theirs["step"] > 2 * STOP_AT
    assert len(theirs["state"]["head"]["weight"]) == 15
    assert_close_runs(runs / f"sharded {optim}", runs / f"whole {optim}", EARLY[optim])


@needs_gloo
@pytest.mark.parametrize("name", ["resumed adamw", "stopped sgd_8bit"])
def test_stopped_and_resumed(name, runs):
    for rank in range(2):
        assert torch.load(runs / f"{rank}.pt")["ends"] == [signal.SIGTERM, None, None, None]
    assert_same_run(runs / name, runs / f"sharded {name.partition(' ')[2]}")


@needs_gloo
def test_begun_sharded_and_ended_whole(runs):
    assert_close_runs(runs / "resumed sgd", runs / "whole sgd", EARLY["sgd"])


@needs_gloo
def test_a_gradient_that_is_not_finite_in_one_shard_skips_the_step_in_all(runs):
    answers = [torch.load(runs / f"{rank}.pt")["steps"] for rank in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["fp32"]["is same"]
    assert len(answers[0]["fp32"]["entries"]) == 8
    assert answers[0]["fp16"] == {"entries": [], "is same": True, "scale": 2.0**15}


def test_one_process_has_nothing_to_shard(speech, tmp_path):
    with pytest.raises(UserError, match=r"loss\.shard=true needs several devices, and this run has one; leave it at"):
        train(tiny_config(speech, tmp_path, loss__shard=True))


def head_of(num_classes: int, name: str = "am"):
    margin, scale = (0.0, 1.0) if name == "softmax" else (0.2, 32.0)
    return build_head(name, embedding_dim=16, num_classes=num_classes, margin=margin, scale=scale)


def test_shards_begin_where_blocks_of_eight_bit_state_do():
    bits = SGD8bitConfig(block_size=48, min_8bit_size=60)
    assert [shard_head(head_of(20), bits, World(rank, 3)).shard[:2] for rank in range(3)] == [(0, 9), (9, 15), (15, 20)]
    # The bias has a value a class, and twenty of them are below the size of 8-bit state.
    assert shard_head(head_of(20, "softmax"), bits, World(1, 3)).shard[:2] == (9, 15)
    assert shard_head(head_of(101, "softmax"), SGD8bitConfig(block_size=48, min_8bit_size=5), World(1, 3)).shard[
        :2
    ] == (48, 96)
    assert shard_head(head_of(20), SGDConfig(), World(1, 3)).shard[:2] == (7, 14)
    with pytest.raises(UserError, match=r"20 classes .* cannot be divided among 8 processes in blocks of 3"):
        shard_head(head_of(20), bits, World(0, 8))
    with pytest.raises(UserError, match=r"a shard of 2 classes x 16 values is below optim\.min_8bit_size=100, .*=32"):
        shard_head(head_of(20), SGD8bitConfig(block_size=48, min_8bit_size=100), World(0, 7))


def test_an_optimizer_of_unknown_state_is_refused():
    with pytest.raises(UserError, match=r"loss\.shard=true .* torch\.optim\.rmsprop\.RMSprop; .*optim\.backend=torch"):
        check_optimizer(torch.optim.RMSprop(head_of(3).parameters()))


def test_a_shard_takes_its_rows_of_the_head_of_another_run():
    network, whole = torch.nn.Linear(2, 2), head_of(7)
    weights = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    head = ShardedHead(head_of(7), shard_classes(7, rank=1, size=2))
    Start(network.state_dict(), weights).put_into(network, head)
    assert torch.equal(head.local.weight, weights["weight"][4:])
    softmax = ShardedHead(head_of(7, "softmax"), shard_classes(7, rank=1, size=2))
    with pytest.raises(UserError, match=r"the head of init_from does not fit loss=softmax \(.*Missing key"):
        Start(network.state_dict(), weights).put_into(network, softmax)
