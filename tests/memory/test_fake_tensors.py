"""QuickFakeTensorMode beside torch's own: the same changes of storage, the same views, the same results in place."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from svtoolkit.memory import apply_strategy
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model


def changes_of_steps(mode, strategy, precision):
    """Differences of the ledger in two steps."""
    with mode, MemoryLedger() as ledger:
        network = build_model("resnet10", num_bins=16, base_width=8).train()
        apply_strategy(network, strategy)
        for _ in range(2):
            with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
                value = network(torch.empty(3, 24, 16))
            value.float().sum().backward()
            del value
    return [change.difference for change in ledger.changes]


@pytest.mark.parametrize(("strategy", "precision"), [("store", None), ("stash8", torch.bfloat16)])
def test_storages_come_and_go_as_with_torchs_own(strategy, precision):
    quick = changes_of_steps(QuickFakeTensorMode(), strategy, precision)
    assert quick == changes_of_steps(FakeTensorMode(), strategy, precision)
    assert len(quick) > 300


def forms_of_norm(mode, shape, dtype, of_weights, *, training, is_last):
    with mode:
        x = torch.empty(shape, dtype=dtype)
        if is_last:
            x = x.contiguous(memory_format=torch.channels_last)
        weight, bias, mean, variance = (torch.empty(shape[1], dtype=of_weights) for _ in range(4))
        found = torch.ops.aten.native_batch_norm(x, weight, bias, mean, variance, training, 0.1, 1e-5)
        gradients = torch.ops.aten.native_batch_norm_backward(
            torch.empty_like(x), x, weight, mean, variance, *found[1:], training, 1e-5, [True] * 3
        )
        return [(each.shape, each.stride(), each.dtype, each.untyped_storage().nbytes()) for each in found + gradients]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("shape", "is_last"), [((8, 6), False), ((8, 6, 5, 4), False), ((8, 6, 5, 4), True)])
def test_a_norm_makes_what_torchs_own_does(shape, is_last, training):
    for dtype, of_weights in [(torch.float32,) * 2, (torch.bfloat16, torch.float32), (torch.float64,) * 2]:
        settings = {"training": training, "is_last": is_last}
        quick = forms_of_norm(QuickFakeTensorMode(), shape, dtype, of_weights, **settings)
        assert quick == forms_of_norm(FakeTensorMode(), shape, dtype, of_weights, **settings)


def test_what_is_known_already_aliases_what_it_should():
    with QuickFakeTensorMode():
        for _ in range(3):
            x = torch.empty(6, 4, requires_grad=True)
            y = x * 2
            first, second = y[:3], y[3:]
            assert type(second) is FakeTensor
            assert (second.shape, second.stride(), second.storage_offset()) == ((3, 4), (4, 1), 12)
            assert second.untyped_storage() is first.untyped_storage() is y.untyped_storage()
            assert y.add_(1) is y
            assert torch.relu(second).untyped_storage() is not y.untyped_storage()
            assert [each.storage_offset() for each in y.detach().chunk(2)] == [0, 12]
            first.sum().backward()
            assert x.grad.shape == x.shape


def test_numbers_do_not_pass_for_each_other():
    with QuickFakeTensorMode():
        x = torch.empty(3, dtype=torch.int64)
        assert [(x * factor).dtype for factor in (1, 1.0, True, 1)] == [
            torch.int64, torch.float32, torch.int64, torch.int64,
        ]  # fmt: skip


def test_what_one_mode_knows_another_makes_of_its_own():
    for dtype in (torch.float32, torch.float64, torch.float32):
        with QuickFakeTensorMode() as mode:
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            try:
                made = torch.empty(3, 4)
                half = made.int() / 2
            finally:
                torch.set_default_dtype(before)
            assert made.fake_mode is half.fake_mode is made[1:].fake_mode is mode
            assert (made.dtype, half.dtype) == (dtype, dtype)


def test_tensors_of_other_devices_are_not_taken_for_those_of_the_cpu():
    with QuickFakeTensorMode():
        for device in ("cpu", "meta", "cpu"):
            assert (torch.empty(3, 4, device=device) * 2).device.type == device
