"""8-bit state on its way through files, copies and other devices: a resumed run is the one that never stopped."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.distributed
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit
from svtoolkit.runs.full_state import load_latest_state, save_state

torch.set_num_threads(1)

Make = Callable[..., torch.optim.Optimizer]


def sgd(parameters, **changes) -> SGD8bit:
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True, "block_size": 64}
    return SGD8bit(parameters, **{**settings, "min_8bit_size": 100, **changes})


def adamw(parameters, **changes) -> AdamW8bit:
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "block_size": 64}
    return AdamW8bit(parameters, **{**settings, "min_8bit_size": 100, **changes})


BOTH = pytest.mark.parametrize("make", [sgd, adamw])


def make_network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)]
    network = nn.Sequential(*layers)
    return network if dtype == torch.float32 else network.to(dtype)


def train(network: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    dtype = next(network.parameters()).dtype
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        output = network(torch.randn(4, 3, 6, 6, generator=generator).to(dtype))
        nn.functional.cross_entropy(output, torch.randint(5, (4,), generator=generator)).backward()
        optimizer.step()


def bits(optimizer: torch.optim.Optimizer) -> list[tuple[object, ...]]:
    """Everything in the state, and the parameters."""
    found: list[tuple[object, ...]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            entries = {"parameter": parameter.detach(), **optimizer.state[parameter]}
            for key, value in sorted(entries.items()):
                if isinstance(value, Tensor):
                    raw = value.contiguous().view(-1).view(torch.uint8).tolist()
                    found.append((key, str(value.dtype), tuple(value.shape), raw))
                else:
                    found.append((key, value))
    return found


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_ten_steps_and_ten_more_after_a_file_are_twenty(make: Make, dtype, tmp_path):
    whole = make_network(dtype)
    straight = make(whole.parameters())
    train(whole, straight, range(20))

    first = make_network(dtype)
    optimizer = make(first.parameters())
    train(first, optimizer, range(10))
    state = {"network": first.state_dict(), "optimizer": optimizer.state_dict()}
    save_state(tmp_path, 10, state, keep=1)

    found = load_latest_state(tmp_path)
    assert found is not None
    second = make_network(dtype)
    second.load_state_dict(found[1]["network"])
    resumed = make(second.parameters(), lr=0.5)
    resumed.load_state_dict(found[1]["optimizer"])
    assert bits(resumed) == bits(optimizer)
    train(second, resumed, range(10, 20))
    assert bits(resumed) == bits(straight)


@BOTH
def test_a_loaded_state_shares_no_memory_with_its_source(make: Make):
    network, other = make_network(), make_network()
    optimizer, loaded = make(network.parameters()), make(other.parameters())
    train(network, optimizer, range(2))
    before = bits(optimizer)
    loaded.load_state_dict(optimizer.state_dict())
    train(other, loaded, range(2, 5))
    assert bits(optimizer) == before


@BOTH
def test_a_state_is_resumed_in_another_memory_layout(make: Make):
    network, other = make_network(), make_network().to(memory_format=torch.channels_last)
    optimizer, loaded = make(network.parameters()), make(other.parameters())
    train(network, optimizer, range(3))
    other.load_state_dict(network.state_dict())
    loaded.load_state_dict(optimizer.state_dict())
    for ours, theirs in zip(network.parameters(), other.parameters(), strict=True):
        ours.grad = torch.randn(ours.shape)
        theirs.grad = ours.grad.to(memory_format=torch.channels_last) if ours.dim() == 4 else ours.grad
    optimizer.step()
    loaded.step()
    assert bits(loaded) == bits(optimizer)


@BOTH
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alike(make: Make, duplicate):
    network = make_network()
    optimizer = make(network.parameters())
    train(network, optimizer, range(3))
    other, copied = duplicate((network, optimizer))
    train(network, optimizer, range(3, 6))
    train(other, copied, range(3, 6))
    assert bits(copied) == bits(optimizer)


@BOTH
def test_a_state_of_its_beginning_is_empty(make: Make):
    optimizer = make(make_network().parameters())
    assert optimizer.state_dict()["state"] == {}
    optimizer.load_state_dict(optimizer.state_dict())
    assert not optimizer.state


def test_without_momentum_there_is_no_state():
    network = make_network()
    optimizer = sgd(network.parameters(), momentum=0.0, nesterov=False)
    train(network, optimizer, range(2))
    assert not optimizer.state
    optimizer.load_state_dict(optimizer.state_dict())


def test_learning_rate_and_block_size_come_with_the_state():
    network = make_network()
    optimizer = sgd(network.parameters(), block_size=32)
    train(network, optimizer, range(2))
    loaded = sgd(network.parameters(), lr=0.7, block_size=64)
    loaded.load_state_dict(optimizer.state_dict())
    assert [loaded.param_groups[0][key] for key in ("lr", "block_size")] == [0.05, 32]
    train(network, loaded, range(2, 3))


def thirty_two_bits(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1)


@pytest.mark.parametrize(
    ("saved_by", "message"),
    [
        (
            thirty_two_bits,
            "the state is of another optimizer, or of its other backend: its settings lack block_size, min_8bit_size",
        ),
        (sgd, "the state is of another optimizer, or of its other backend: its settings lack betas, eps"),
        (lambda p: adamw(list(p)[:2]), "doesn't match the size of optimizer's group"),
        (lambda p: adamw([*list(p)[1:], nn.Parameter(torch.ones(216))]), r"the state of parameter 0 holds exp_avg \(8"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(saved_by, message):
    parameters = list(make_network().parameters())
    source = saved_by(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    source.step()
    target = adamw(parameters)
    target.step()
    before = bits(target)
    with pytest.raises(ValueError, match=message):
        target.load_state_dict(source.state_dict())
    assert bits(target) == before
    assert target.param_groups[0]["lr"] == 0.01
    target.step()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("step"),
        lambda state: state.pop("exp_avg_absmax"),
        lambda state: state.update(exp_avg_codes=state["exp_avg_codes"].float()),
        lambda state: state.update(exp_avg_sq_absmax=state["exp_avg_sq_absmax"][1:]),
    ],
)
def test_a_state_with_a_part_missing_or_changed_is_refused(spoil):
    network = make_network()
    optimizer = adamw(network.parameters())
    train(network, optimizer, range(1))
    state = copy.deepcopy(optimizer.state_dict())
    spoil(state["state"][0])
    with pytest.raises(ValueError, match=r"the state of parameter 0 holds .*, expected exp_avg_codes \(216 x uint8\)"):
        optimizer.load_state_dict(state)


@BOTH
def test_a_step_can_be_rehearsed_on_fake_tensors(make: Make):
    """Which is how memory is predicted; tensors of the rehearsal must not be left behind for real steps."""
    with FakeTensorMode():
        network = make_network()
        optimizer = make(network.parameters())
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.step()
        sizes = [value.nbytes for s in optimizer.state.values() for value in s.values() if isinstance(value, Tensor)]
    real = make_network()
    optimizer = make(real.parameters())
    train(real, optimizer, range(2))
    assert sizes == [v.nbytes for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]


@BOTH
def test_distributed_data_parallel_hands_it_the_same_gradients(make: Make):
    alone, wrapped = make_network(), make_network()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(wrapped, gradient_as_bucket_view=True)
        ours, theirs = make(parallel.parameters()), make(alone.parameters())
        train(parallel, ours, range(3))
        train(alone, theirs, range(3))
    finally:
        torch.distributed.destroy_process_group()
    assert bits(ours) == bits(theirs)
