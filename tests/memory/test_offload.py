"""memory=offload with the CPU as the far side: the numbers of stored activations, whatever the copies wait for."""

from __future__ import annotations

import copy
import gc
import logging
from itertools import accumulate, pairwise

import pytest
import torch
from network_material import narrow
from offload_material import LateTransfers, free_bytes, offloaded, plain, step_of
from reversible_material import assert_bit_equal, one_step, random_map, relative_error, tiny_network
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.host_pool import HostPool
from svtoolkit.memory.intensity import CountFlops
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.offloading import Ticket, Trip
from svtoolkit.models import build_model
from svtoolkit.models.blocks import BasicBlock
from svtoolkit.reversible import Chain

torch.set_num_threads(1)
CPU = torch.device("cpu")


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


def chain_of(blocks: int, width: int = 4) -> Chain:
    torch.manual_seed(0)
    return Chain(*(BasicBlock(width, width) for _ in range(blocks)))


@pytest.mark.parametrize("name", ["resnet10", "revnet", "ecapa_tdnn_c512", "eres2netv2"])
def test_gradients_and_statistics_are_those_of_stored_activations(name):
    torch.manual_seed(0)
    networks = {"resnet10": resnet, "revnet": tiny_network}
    network = networks[name]() if name in networks else narrow(name, num_bins=16, embedding_dim=8)
    frames = random_map(3, 24, 16)
    stored = one_step(network, frames, "store")
    strategy = offloaded(network)
    for _ in range(2):
        assert_bit_equal(step_of(network, frames), stored)
    assert strategy.pool.allocated > 0


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_autocast_and_frozen_weights(cast):
    network, frames = resnet(), random_map(3, 24, 16)
    for part in (network.stem, network.stages[0]):
        part.requires_grad_(False).eval()
    stored = one_step(network, frames, "store", cast=cast, learns_input=False)
    offloaded(network)
    assert_bit_equal(step_of(network, frames, cast=cast, learns_input=False), stored)


def test_half_precision_on_the_way():
    network, frames = resnet(), random_map(4, 96, 16)
    stored = one_step(network, frames, "store")
    whole = offloaded(network).pool
    step_of(network, frames)
    half = offloaded(network, half=True).pool
    assert 1e-6 < relative_error(step_of(network, frames), stored) < 0.05
    assert half.allocated < 0.8 * whole.allocated


def test_host_memory_is_allocated_once_and_comes_back():
    network = resnet()
    strategy = offloaded(network)
    for frames in (24, 20):
        step_of(network, random_map(3, frames, 16))
    allocated = strategy.pool.allocated
    for frames in (24, 20, 24):
        step_of(network, random_map(3, frames, 16))
    assert strategy.pool.allocated == allocated == free_bytes(strategy)


def test_several_graphs_are_alive_and_may_be_kept():
    network = resnet().eval()
    batches = [random_map(2, 24, 16, seed=seed) for seed in range(3)]
    weight = network.stages[0][0].conv1.weight
    apply_strategy(network, "store")
    stored = [torch.autograd.grad(network(frames).sum(), [weight])[0] for frames in batches]
    strategy = offloaded(network)
    values = [network(frames).sum() for frames in batches]
    for number, keeps in ((1, True), (0, False), (1, True), (2, False), (1, False)):
        (found,) = torch.autograd.grad(values[number], [weight], retain_graph=keeps)
        assert torch.equal(found, stored[number])
    del values
    assert free_bytes(strategy) == strategy.pool.allocated


def test_a_graph_that_is_dropped_or_fails_gives_its_memory_back():
    network, frames = resnet(), random_map(2, 24, 16)
    strategy = offloaded(network)
    network(frames)

    def fails(gradient: Tensor) -> None:
        raise ArithmeticError

    value = network(frames)
    handle = network.stages[1][0].conv1.weight.register_hook(fails)
    with pytest.raises(ArithmeticError):
        value.sum().backward()
    handle.remove()
    del value
    broken = network.stages[2][0].conv2
    broken.forward = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        network(frames)
    del broken.forward
    torch.zeros(1, requires_grad=True).sum().backward()  # until then torch itself keeps the graph that failed
    gc.collect()
    assert free_bytes(strategy) == strategy.pool.allocated
    assert strategy._trips == []
    found = step_of(network, frames)
    assert_bit_equal(found, one_step(network, frames, "store"))


def test_the_block_before_is_fetched_while_one_is_differentiated():
    """A block saves its input: that of block k is asked for when k + 1 begins, and waited for by k."""
    chain, transfers = Chain(*(nn.Linear(8, 8) for _ in range(6))), LateTransfers()
    offloaded(chain, transfers)
    value = chain(random_map(3, 8).requires_grad_())
    forward = len(transfers.order)
    waited = [copy for kind, copy in transfers.order if kind == "wait"]
    sent = [copy for kind, copy in transfers.order if kind == "copy"]
    assert waited == sent[: len(waited)], "each leaves the device when the block after it has ended"
    assert len(sent) - len(waited) <= 2
    value.sum().backward()
    backward = transfers.order[forward:]
    fetched = [copy for kind, copy in backward if kind == "copy"]
    assert len(fetched) >= 3
    for this, following in pairwise(fetched):
        assert backward.index(("copy", following)) < backward.index(("wait", following))
        assert backward.index(("wait", this)) < backward.index(("copy", following)), "one block ahead, no more"


def test_memory_of_16_blocks():
    """In maps of one block, which autograd keeps four of: those of a few blocks are on the device at once."""
    chain, frames = chain_of(16), random_map(4, 4, 16, 40)
    strategy = offloaded(chain, smallest=1024)
    chain(frames).sum().backward()
    chain.zero_grad()
    with MemoryLedger() as ledger:
        ledger.count(buffer.memory for buffer in strategy.pool._free)
        before = len(ledger.changes)
        host = sum(ledger.live().values())
        chain(frames).sum().backward()
    assert host > 4 * 13 * 4 * frames.numel()
    assert max(accumulate(change.difference for change in ledger.changes[before:])) / (4 * frames.numel()) < 4 * 6


def trip(transfers: LateTransfers | None = None, staying: tuple[Tensor, ...] = (), **settings) -> Trip:
    given = {"half": False, "smallest": 16, "staying": staying, **settings}
    return Trip(CPU, HostPool(plain), transfers or LateTransfers(), **given)


def test_weights_their_views_and_casts_and_small_tensors_stay():
    layer = nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        casts = layer.weight.to(torch.bfloat16)
    found = trip(staying=(layer.weight, layer.bias))
    for tensor in (layer.weight, layer.weight.t(), layer.weight[2:], layer.weight.detach(), casts, torch.zeros(3)):
        assert not isinstance(found.pack(tensor), Ticket)
        assert torch.equal(found.pack(tensor).value(), tensor)
    assert isinstance(found.pack(layer.weight * 2), Ticket)


def test_views_of_a_storage_travel_once():
    transfers = LateTransfers()
    found, x = trip(transfers), random_map(6, 8)
    views = [x, x.t(), x[2:, ::3], x.view(48), x[4:5].expand(7, 8)]
    expected = [view.clone() for view in views]
    tickets = [found.pack(view) for view in views]
    del views, x
    for _ in range(3):
        found.begin_block()
    found.arrive()
    assert [kind for kind, _ in transfers.order] == ["copy", "wait"]
    for ticket, tensor in zip(tickets, expected, strict=True):
        value = ticket.value()
        assert torch.equal(value, tensor)
        assert value.shape == tensor.shape
    assert [kind for kind, _ in transfers.order] == ["copy", "wait"] * 2


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_an_activation_that_is_modified_afterwards_is_refused(blocks):
    found, x = trip(), random_map(6, 8)
    ticket = found.pack(x)
    for number in range(blocks + 1):
        if number == blocks:
            x.add_(1)
        found.begin_block()
    found.begin_block()
    if blocks < 2:  # later it is a copy, which nothing can change
        with pytest.raises(RuntimeError, match="modified in place before its gradient"):
            ticket.value()
    else:
        assert torch.equal(ticket.value(), random_map(6, 8))


def test_a_buffer_is_not_written_before_its_copy_back_has_ended():
    """The fake stream runs nothing by itself: a new copy into the buffer has to be told to follow the old one."""
    transfers = LateTransfers()
    found, x = trip(transfers), random_map(6, 8)
    ticket, expected = found.pack(x), x.clone()
    del x
    for _ in range(2):
        found.begin_block()
    ticket.cargo.come_back()
    (host,) = (ticket.cargo._host,)
    back = host.last_use
    del ticket
    gc.collect()
    other = trip(transfers)
    other.pool = found.pool
    second = other.pack(torch.zeros(6, 8))
    for _ in range(2):
        other.begin_block()
    assert second.cargo._host is host
    assert back.has_run
    assert host.last_use.after is back
    assert torch.equal(second.value(), torch.zeros(6, 8))
    assert expected.any()


def test_flops_are_counted():
    with CountFlops() as counted:
        nn.Conv2d(4, 6, 3, padding=1, groups=2)(torch.zeros(2, 4, 5, 7))
        nn.Linear(8, 3)(torch.zeros(5, 8))
        torch.zeros(2, 3, 4) @ torch.zeros(2, 4, 5)
    assert counted.flops == 2 * (2 * 6 * 5 * 7 * 2 * 9 + 5 * 3 * 8 + 2 * 3 * 5 * 4)


def test_blocks_that_compute_little_stay_from_their_second_time_on():
    heavy = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Tanh())
    chain = Chain(heavy, nn.Sequential(nn.Conv2d(8, 8, 1, groups=8), nn.Tanh()), nn.Identity(), nn.Identity())
    transfers, x = LateTransfers(), random_map(2, 8, 6, 6)
    strategy = offloaded(chain, transfers, intensity=10.0)
    moved = []
    for _ in range(2):
        begin = len(transfers.order)
        chain(x).sum().backward()
        moved.append(sum(kind == "copy" for kind, _ in transfers.order[begin:]))
    assert strategy.intensities[0] > 10 > strategy.intensities[1] > 0
    assert moved[1] < moved[0]


def test_on_a_cpu_it_does_nothing_and_says_so_once(caplog):
    network, frames = resnet(), random_map(3, 24, 16)
    stored = one_step(network, frames, "store")
    apply_strategy(network, "offload")
    with caplog.at_level(logging.WARNING):
        with torch.no_grad():
            network(frames)
        assert caplog.messages == []
        for _ in range(2):
            step_of(network, frames)
    assert caplog.messages == ["memory=offload does nothing on a CPU: activations stay where they are"]
    network.load_state_dict(resnet().state_dict())
    assert_bit_equal(one_step(network, frames, "offload"), stored)


def test_another_strategy_ends_it_and_a_copy_has_a_pool_of_its_own():
    network, frames = resnet(), random_map(3, 24, 16)
    stored = one_step(network, frames, "store")
    strategy = offloaded(network)
    step_of(network, frames)
    copied, allocated = copy.deepcopy(network), strategy.pool.allocated
    apply_strategy(network, "store")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    assert_bit_equal(step_of(copied, frames), stored)
    assert strategy.pool.allocated == allocated == free_bytes(strategy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"intensity": -1.0}, "memory.intensity is -1.0, expected"),
        ({"intensity": float("inf")}, "intensity is inf, expected a finite number"),
        ({"folder": "/nowhere/at/all"}, "memory.folder is '/nowhere/at/all', expected a folder"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        apply_strategy(resnet(), "offload", **settings)


def test_a_network_without_blocks_is_refused():
    with pytest.raises(UserError, match="memory=offload needs a network that lists its blocks"):
        apply_strategy(nn.Linear(2, 2), "offload")
