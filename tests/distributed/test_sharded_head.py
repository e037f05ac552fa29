"""A sharded head against the whole one: two and three processes, gloo, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from forked import run_group
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from svtoolkit.distributed.class_shards import shard_classes
from svtoolkit.distributed.sharded_head import ShardedHead
from svtoolkit.errors import UserError
from svtoolkit.losses import ClassificationHead, build_head

needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)

DIM, CROPS = 6, 4
DTYPES = (torch.float32, torch.float64)
NAMES = ("aam", "am", "softmax", "distance")
LABELS = {"of all": None, "of the first": 0, "of the last": -1}


class DistanceHead(ClassificationHead):
    """A head that nobody has written yet: minus the squared distance to a class, made larger by the margin."""

    def similarities(self, embeddings: Tensor) -> Tensor:
        return -torch.cdist(embeddings, self.weight).square()

    def with_margin(self, target: Tensor) -> Tensor:
        return target * (1.0 + self.margin)


def build_whole(name: str, num_classes: int, dtype: torch.dtype) -> ClassificationHead:
    torch.manual_seed(num_classes)
    if name == "distance":
        head: ClassificationHead = DistanceHead(DIM, num_classes, scale=2.0)
    elif name == "softmax":
        head = build_head(name, embedding_dim=DIM, num_classes=num_classes, margin=0.0, scale=1.0)
        torch.nn.init.normal_(head.bias)
    else:
        head = build_head(name, embedding_dim=DIM, num_classes=num_classes, margin=0.2, scale=32.0)
    head.margin = 0.0 if name == "softmax" else 0.2
    return head.to(dtype)


def crops(size: int, num_classes: int, which: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Inputs (crops of all processes, DIM) and labels, of any class or of one process's alone."""
    generator = torch.Generator().manual_seed(size)
    inputs = 2 * torch.randn(size * CROPS, DIM, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(num_classes, (size * CROPS,), generator=generator)
    if LABELS[which] is not None:
        labels = torch.full_like(labels, LABELS[which] % num_classes)
    return inputs, labels


def encoder(dtype: torch.dtype) -> Tensor:
    """What stands for the network: one matrix, of which every process has a replica."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(DIM, DIM, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def step_of_shard(rank: int, size: int, name: str, num_classes: int, which: str, dtype: torch.dtype) -> dict[str, Any]:
    """One step of one process, in the convention of replicas: its loss x processes / batch, gradients averaged."""
    shard = shard_classes(num_classes, rank=rank, size=size)
    margin = (whole := build_whole(name, num_classes, dtype)).margin
    head = ShardedHead(whole, shard)
    head.margin = margin
    inputs, labels = (part[rank * CROPS : (rank + 1) * CROPS] for part in crops(size, num_classes, which, dtype))
    weight = encoder(dtype)
    embeddings = inputs @ weight
    embeddings.retain_grad()
    output = head(embeddings, labels)
    (output.losses.sum() * size / (size * CROPS)).backward()
    assert weight.grad is not None
    dist.all_reduce(weight.grad)
    return {
        "shard": (shard.start, shard.stop),
        "output": tuple(part.detach() for part in output),
        "embeddings": embeddings.grad,
        "encoder": weight.grad / size,
        "head": {key: parameter.grad for key, parameter in head.local.named_parameters()},
    }


def at_once(size: int, name: str, num_classes: int, which: str, dtype: torch.dtype) -> dict[str, Any]:
    """The same step of one process with the whole head on the whole batch."""
    head, weight = build_whole(name, num_classes, dtype), encoder(dtype)
    inputs, labels = crops(size, num_classes, which, dtype)
    embeddings = inputs @ weight
    embeddings.retain_grad()
    output = head(embeddings, labels)
    (output.losses.sum() / (size * CROPS)).backward()
    return {
        "output": tuple(part.detach() for part in output),
        "embeddings": embeddings.grad,
        "encoder": weight.grad,
        "head": {key: parameter.grad for key, parameter in head.named_parameters()},
    }


def cases(size: int) -> list[tuple[str, int, str, torch.dtype]]:
    """Numbers of classes that the processes cannot divide equally, and one class each."""
    everything = [(name, 7, "of all", dtype) for name in NAMES for dtype in DTYPES]
    one_side = [("aam", 7, which, torch.float64) for which in LABELS]
    return everything + one_side + [("aam", size, "of all", torch.float64), ("am", 11, "of all", torch.float32)]


def by_torch(rank: int, size: int) -> tuple[list[Tensor], list[Tensor]]:
    """Losses and gradient of logits: with torch's loss_parallel, and with ours."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    head = ShardedHead(build_whole("softmax", 4 * size, torch.float64), shard_classes(4 * size, rank=rank, size=size))
    inputs, labels = crops(size, 4 * size, "of all", torch.float64)
    logits = head.local.similarities(inputs).detach().requires_grad_()
    sharded = DTensor.from_local(logits, init_device_mesh("cpu", (size,)), [Shard(1)], run_check=False)
    with loss_parallel():
        losses = F.cross_entropy(sharded, labels, reduction="none")
        losses.sum().backward()
    theirs = [losses.to_local().detach()[rank * CROPS : (rank + 1) * CROPS], logits.grad.clone()]
    logits.grad = None
    head.local.similarities = lambda embeddings: logits  # type: ignore[method-assign]
    own = slice(rank * CROPS, (rank + 1) * CROPS)
    output = head(inputs[own], labels[own])
    output.losses.sum().backward()
    return theirs, [output.losses.detach(), logits.grad]


def under_autocast(rank: int, size: int) -> tuple[Tensor, Tensor]:
    inputs, labels = crops(size, 7, "of all", torch.bfloat16)
    own = slice(rank * CROPS, (rank + 1) * CROPS)
    head = ShardedHead(build_whole("aam", 7, torch.float32), shard_classes(7, rank=rank, size=size))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head(inputs[own], labels[own]).losses.detach()
    return inside, head(inputs[own].float(), labels[own]).losses.detach()


def with_a_broken_weight(rank: int, size: int, value: float) -> Tensor:
    """Losses where the last class, which one process has, is not finite."""
    head = build_whole("softmax", 7, torch.float32)
    with torch.no_grad():
        head.weight[-1] = value
    inputs, labels = crops(size, 7, "of the first", torch.float32)
    own = slice(rank * CROPS, (rank + 1) * CROPS)
    return ShardedHead(head, shard_classes(7, rank=rank, size=size))(inputs[own], labels[own]).losses.detach()


def ties(rank: int, size: int) -> tuple[list[bool], list[bool]]:
    """Hits of embeddings of zeros, which are as far from one class as from any other."""
    head = ShardedHead(build_whole("aam", 7, torch.float32), shard_classes(7, rank=rank, size=size))
    labels = torch.arange(size * CROPS)[rank * CROPS : (rank + 1) * CROPS] % 7
    output = head(torch.zeros(CROPS, DIM), labels)
    return output.correct.tolist(), output.correct_no_margin.tolist()


def work(rank: int, size: int, folder: Path) -> None:
    """All cases in one group of processes."""
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        results = {
            "steps": {case: step_of_shard(rank, size, *case) for case in cases(size)},
            "by torch": by_torch(rank, size),
            "autocast": under_autocast(rank, size),
            "broken": [with_a_broken_weight(rank, size, value) for value in (float("nan"), float("inf"))],
            "ties": ties(rank, size),
        }
    finally:
        dist.destroy_process_group()
    torch.save(results, folder / f"{rank}.pt")


@pytest.fixture(scope="module", params=[2, 3])
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found."""
    folder = tmp_path_factory.mktemp("shards")
    run_group(work, request.param, request.param, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(request.param)]


@needs_gloo
def test_losses_hits_and_gradients_are_those_of_the_whole_head(shards):
    size = len(shards)
    for case in cases(size):
        found, expected = [shard["steps"][case] for shard in shards], at_once(size, *case)
        tolerance = {torch.float32: {"rtol": 2e-5, "atol": 1e-5}, torch.float64: {"rtol": 1e-12, "atol": 1e-13}}
        close = {**tolerance[case[-1]], "msg": lambda text, case=case: f"{case}: {text}"}
        losses, *hits = (torch.cat(parts) for parts in zip(*(each["output"] for each in found), strict=True))
        torch.testing.assert_close(losses, expected["output"][0], **close)
        assert [part.tolist() for part in hits] == [part.tolist() for part in expected["output"][1:]], case
        # DDP takes the mean over processes of what a gradient of embeddings leads to.
        embeddings = torch.cat([each["embeddings"] for each in found]) / size
        torch.testing.assert_close(embeddings, expected["embeddings"], **close)
        for each in found:
            torch.testing.assert_close(each["encoder"], expected["encoder"], **close)
            start, stop = each["shard"]
            assert each["head"].keys() == expected["head"].keys()
            for name, gradient in each["head"].items():
                torch.testing.assert_close(gradient, expected["head"][name][start:stop], **close)


@needs_gloo
def test_the_cases_have_hits_and_misses_on_both_sides_of_the_margin(shards):
    """Otherwise they would show nothing."""
    outputs = [at_once(len(shards), *case)["output"] for case in cases(len(shards))]
    for hits in (torch.cat([output[1] for output in outputs]), torch.cat([output[2] for output in outputs])):
        assert 0.1 < hits.double().mean() < 0.9
    assert any((output[1] != output[2]).any() for output in outputs)


@needs_gloo
def test_the_cross_entropy_is_that_of_loss_parallel(shards):
    for shard in shards:
        for theirs, ours in zip(*shard["by torch"], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@needs_gloo
def test_autocast_changes_nothing(shards):
    for shard in shards:
        inside, outside = shard["autocast"]
        assert inside.dtype == torch.float32
        assert torch.equal(inside, outside)


@needs_gloo
def test_a_weight_that_is_not_finite_is_noticed_by_all(shards):
    for shard in shards:
        for losses in shard["broken"]:
            assert not losses.isfinite().any()


@needs_gloo
def test_of_equals_the_first_class_wins(shards):
    whole = build_whole("aam", 7, torch.float32)
    labels = torch.arange(len(shards) * CROPS) % 7
    expected = whole(torch.zeros(len(labels), DIM), labels)
    for number, hits in enumerate((expected.correct, expected.correct_no_margin)):
        assert [hit for shard in shards for hit in shard["ties"][number]] == hits.tolist()
    assert expected.correct_no_margin.tolist() == (labels == 0).tolist()


@given(num_classes=st.integers(1, 500), size=st.integers(1, 9), multiple=st.integers(1, 20))
def test_shards_are_all_classes_in_turn(num_classes, size, multiple):
    if -(-num_classes // multiple) < size:
        with pytest.raises(UserError, match=rf"{num_classes} classes .* among {size} processes.*fewer"):
            shard_classes(num_classes, rank=0, size=size, multiple=multiple)
        return
    shards = [shard_classes(num_classes, rank=rank, size=size, multiple=multiple) for rank in range(size)]
    assert [row for shard in shards for row in range(shard.start, shard.stop)] == list(range(num_classes))
    assert all(shard.start % multiple == 0 and shard.stop > shard.start for shard in shards)
    lengths = [-(-(shard.stop - shard.start) // multiple) for shard in shards]
    assert max(lengths) - min(lengths) <= 1


def test_a_shard_loads_its_rows_of_a_whole_state():
    whole, shard = build_whole("softmax", 7, torch.float32), shard_classes(7, rank=1, size=2)
    state = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    head = ShardedHead(build_head("softmax", embedding_dim=DIM, num_classes=7, margin=0.0, scale=1.0), shard)
    head.load_state_dict(state)
    assert torch.equal(head.local.weight, state["weight"][4:])
    assert torch.equal(head.local.bias, state["bias"][4:])
    with pytest.raises(RuntimeError, match="size mismatch for weight: 6 classes, not 7"):
        head.load_state_dict({name: tensor[:6] for name, tensor in state.items()})
    with pytest.raises(RuntimeError, match="Missing key"):
        head.load_state_dict({"weight": state["weight"]})
    with pytest.raises(ValueError, match="a shard copies what it loads"):
        head.load_state_dict(state, assign=True)


def test_a_parameter_that_is_no_row_for_each_class_is_refused():
    head = build_whole("am", 7, torch.float32)
    head.register_parameter("temperature", torch.nn.Parameter(torch.ones(1)))
    with pytest.raises(ValueError, match=r"temperature is \(1,\), expected a row for each of 7"):
        ShardedHead(head, shard_classes(7, rank=0, size=2))
