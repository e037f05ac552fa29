"""The ledger of storage: what is counted, once, from when to when."""

from __future__ import annotations

import contextlib
import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from svtoolkit.memory.ledger import MemoryLedger

torch.set_num_threads(1)

MODES = [contextlib.nullcontext, FakeTensorMode]
both_modes = pytest.mark.parametrize("mode", MODES, ids=["real", "fake"])


def live_bytes(ledger: MemoryLedger) -> int:
    return sum(ledger.live().values())


def peak_of(ledger: MemoryLedger) -> int:
    level = peak = 0
    for change in ledger.changes:
        level += change.difference
        peak = max(peak, level)
    return peak


@both_modes
def test_storage_counts_from_its_making_to_its_end(mode):
    with mode(), MemoryLedger() as ledger:
        first = torch.ones(10)
        second = torch.ones(3, dtype=torch.float64)
        assert live_bytes(ledger) == 40 + 24
        del first
        assert ledger.live() == {1: 24}
        del second
        assert ledger.live() == {}
    assert ledger.changes == [(0, 40), (1, 24), (0, -40), (1, -24)]


@both_modes
def test_views_and_what_is_done_in_place_cost_nothing(mode):
    with mode(), MemoryLedger() as ledger:
        base = torch.ones(4, 6)
        views = [base[1:], base.t(), base.view(-1)[::2], base.unsqueeze(0).expand(9, 4, 6), base.detach()]
        base.add_(1).relu_()
        torch.mul(base, 2, out=base)
        assert live_bytes(ledger) == 96
        del base
        assert live_bytes(ledger) == 96  # a view keeps it
        views.clear()
        assert live_bytes(ledger) == 0


@both_modes
def test_storage_made_before_is_counted_when_it_is_used(mode):
    with mode():
        before, told = torch.ones(7), torch.ones(5)
        with MemoryLedger() as ledger:
            assert ledger.count([told, told[1:]]) == {0}
            assert live_bytes(ledger) == 20
            before.add_(1)
            assert live_bytes(ledger) == 20 + 28
            del before
            assert live_bytes(ledger) == 20


@both_modes
def test_storage_that_is_resized(mode):
    with mode(), MemoryLedger() as ledger:
        tensor = torch.ones(10)
        storage = tensor.untyped_storage()
        storage.resize_(0)
        assert ledger.live() == {0: 0}
        storage.resize_(40)
        assert ledger.live() == {0: 40}
        tensor.resize_(25)
        assert ledger.live() == {0: 100}
        torch.zeros(30, out=tensor.resize_(0))
        assert ledger.live() == {0: 120}
    assert "resize_" not in vars(torch.UntypedStorage)


def test_resizes_are_told_to_every_ledger_and_to_none_afterwards():
    with MemoryLedger() as outer:
        tensor = torch.ones(10)
        with MemoryLedger() as inner:
            inner.count([tensor])
            tensor.untyped_storage().resize_(80)
        assert outer.live() == inner.live() == {0: 80}
        tensor.untyped_storage().resize_(8)
        assert (outer.live(), inner.live()) == ({0: 8}, {0: 80})
    tensor.untyped_storage().resize_(0)
    assert outer.live() == {0: 8}
    assert "resize_" not in vars(torch.UntypedStorage)


def test_set_data_frees_what_was_there():
    with MemoryLedger() as ledger:
        parameter = nn.Parameter(torch.ones(10))
        parameter.data = torch.ones(3)
        assert live_bytes(ledger) == 12


@both_modes
def test_sizes_are_those_of_the_tensors(mode):
    with mode(), MemoryLedger() as ledger:
        kept = [torch.ones(1), torch.ones(128), torch.ones(129), torch.ones(0)]
        assert list(ledger.live().values()) == [4, 512, 516, 0]
    assert len(kept) == 4


def test_other_devices_do_not_count():
    with MemoryLedger() as ledger:
        elsewhere = torch.ones(10, device="meta")
        here = torch.ones(10)
        assert ledger.live() == {0: 40}
    with MemoryLedger("meta") as ledger:
        kept = elsewhere + 1
        assert live_bytes(ledger) == 80
    assert len(here) == len(kept)


def test_a_wrapper_counts_as_what_it_wraps():
    two = pytest.importorskip("torch.testing._internal.two_tensor", reason="of torch's own tests")
    with MemoryLedger() as ledger:
        pair = two.TwoTensor(torch.ones(10), torch.ones(10))
        assert live_bytes(ledger) == 80
        tripled = pair * 3
        assert live_bytes(ledger) == 160
        del pair, tripled
        assert live_bytes(ledger) == 0


# ---- autograd ----


class Square(torch.autograd.Function):
    """Makes a tensor of its own in either pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        scratch = x.repeat(3)
        return scratch[: len(x)].clone() * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        scratch = torch.ones(50)
        return 2 * x * gradient * scratch[0]


@both_modes
def test_tensors_of_a_function_s_backward_pass(mode):
    with mode():
        x = torch.ones(10, requires_grad=True)
        with MemoryLedger() as ledger:
            y = Square.apply(x)
            assert live_bytes(ledger) == 40 + 40  # x and y: the scratch of 120 is gone
            assert peak_of(ledger) == 40 + 120 + 40 + 40
            y.backward(torch.ones(10))
            assert max(change.difference for change in ledger.changes) == 200
            assert live_bytes(ledger) == 40 + 40 + 40  # x, y and the gradient


@both_modes
def test_a_gradient_is_one_storage_also_where_it_is_the_sum_of_two(mode):
    with mode():
        x = torch.ones(10, requires_grad=True)
        with MemoryLedger() as ledger:
            ledger.count([x])
            (x * 2).sum().backward()
            assert live_bytes(ledger) == 80
            number = ledger.count([x.grad])
            (x * 2 + x * 3).sum().backward()
            assert live_bytes(ledger) == 80
            assert ledger.count([x.grad]) == number
            x.grad = None
            assert live_bytes(ledger) == 40


@both_modes
def test_what_autograd_keeps_is_there_until_the_backward_pass(mode):
    with mode():
        x = torch.ones(10, requires_grad=True)
        with MemoryLedger() as ledger:
            ledger.count([x])
            loss = x.exp().exp().sum()
            assert live_bytes(ledger) == 40 + 2 * 40 + 4
            loss.backward()
            assert live_bytes(ledger) == 40 + 40 + 4


@both_modes
def test_a_checkpoint_keeps_its_input_alone_and_computes_the_rest_again(mode):
    def block(value):
        return value.exp().exp().exp()

    with mode():
        x = torch.ones(100, requires_grad=True)
        with MemoryLedger() as ledger:
            ledger.count([x])
            loss = checkpoint(block, x, use_reentrant=False).sum()
            assert live_bytes(ledger) == 400 + 4
            loss.backward()
            gc.collect()
            assert live_bytes(ledger) == 400 + 4 + 400
        # input, loss and the gradients of loss and sum (a view of it); all three recomputed
        assert peak_of(ledger) >= 400 + 4 + 4 + 3 * 400


@both_modes
def test_autocast_casts_weights_once_and_keeps_them(mode):
    with mode():
        layer = nn.Linear(8, 4, bias=False)
        x = torch.ones(2, 8)
        with MemoryLedger() as ledger:
            ledger.count([x, layer.weight])
            before = live_bytes(ledger)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = layer(x) + layer(x)
                assert live_bytes(ledger) == before + 2 * (4 * 8 + 2 * 8 + 2 * 8 + 2 * 4)  # weight, x twice, sum
            loss = y.float().sum()
            del y
            # the graph keeps the cast input of each product for the gradient of the weight, but no cast weight
            assert live_bytes(ledger) == before + 2 * (2 * 8 + 2 * 8) + 4
            loss.backward()
            assert live_bytes(ledger) == before + 4 + 4 * 4 * 8


class Nested(torch.autograd.Function):
    """A backward pass within a backward pass, so deep that autograd goes on in another thread."""

    depth_of_torch = 60

    @staticmethod
    def forward(ctx, x, depth, threads):
        ctx.depth, ctx.threads = depth, threads
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.depth:
            with torch.enable_grad():
                x = torch.zeros(3, requires_grad=True)
                Nested.apply(x, ctx.depth - 1, ctx.threads).sum().backward()
        else:
            ctx.threads.append(threading.get_ident())
            ctx.threads.append(torch.ones(1000))
        return gradient * 2, None, None


def test_autograd_s_other_threads_are_seen():
    """As on CUDA, where every backward pass runs in a thread of the device."""
    threads: list = []
    x = torch.ones(3, requires_grad=True)
    with MemoryLedger() as ledger:
        Nested.apply(x, Nested.depth_of_torch + 5, threads).sum().backward()
        assert threads[0] != threading.get_ident()
        assert 4000 in ledger.live().values()
        threads.clear()
        assert 4000 not in ledger.live().values()


def test_storage_may_die_in_another_thread():
    with MemoryLedger() as ledger:
        kept = [torch.ones(10) for _ in range(100)]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        assert live_bytes(ledger) == 0


@both_modes
def test_optimizers_that_go_through_all_weights_at_once(mode):
    with mode():
        weights = [torch.ones(10, requires_grad=True) for _ in range(5)]
        for foreach, scratch in ((False, 40), (True, 5 * 40)):
            optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=foreach)
            for weight in weights:
                weight.grad = torch.ones(10)
            optimizer.step()
            with MemoryLedger() as ledger:
                ledger.count(weights)
                ledger.count([weight.grad for weight in weights])
                ledger.count([optimizer.state[weight]["momentum_buffer"] for weight in weights])
                assert live_bytes(ledger) == 3 * 200
                optimizer.step()
                assert live_bytes(ledger) == 3 * 200
            assert peak_of(ledger) == 3 * 200 + scratch


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_the_ledger_and_the_allocator_agree():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()
    x = torch.randn(4096, 256, device="cuda")  # as all here a multiple of 512 bytes, which the allocator rounds up to
    network(x).sum().backward()  # cuBLAS takes its workspace
    network.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with MemoryLedger("cuda") as ledger:
        ledger.count([x, *network.parameters()])
        begin = live_bytes(ledger)
        F.relu(network(x)).sum().backward()
        torch.cuda.synchronize()
        assert live_bytes(ledger) - begin == torch.cuda.memory_allocated() - base
        assert peak_of(ledger) - begin == pytest.approx(torch.cuda.max_memory_allocated() - base, rel=0.02)
