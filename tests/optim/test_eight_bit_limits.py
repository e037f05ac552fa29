"""8-bit optimizers at their limits: memory of state and step, gradients that overflow or are refused, bad settings."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable

import pytest
import torch
from eight_bit_material import ALL_8, ALL_32, BOTH, SETTINGS, gradients_of, make_parameters, run
from network_material import on_meta
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from svtoolkit.optim import AdamW8bit, SGD8bit, chunks
from svtoolkit.optim.chunks import plan_chunks

torch.set_num_threads(1)


@pytest.mark.parametrize(("kind", "ceiling"), [(SGD8bit, 1.02), (AdamW8bit, 2.05)], ids=["sgd", "adamw"])
def test_state_of_a_resnet152(kind, ceiling, monkeypatch):
    shapes = [parameter.shape for parameter in on_meta("resnet152", embedding_dim=256).parameters()]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = kind(parameters, lr=0.1, **({"momentum": 0.9} if kind is SGD8bit else {}))
    monkeypatch.setattr(kind, "_update_chunk", lambda *arguments: None)  # of state that has begun
    optimizer.step()
    assert len(optimizer.state) == len(parameters)
    storages = {
        value.untyped_storage().data_ptr(): value.untyped_storage().nbytes()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    }
    assert sum(storages.values()) / sum(parameter.numel() for parameter in parameters) <= ceiling


class TransientMemory(TorchDispatchMode):
    """Most bytes at once in storages that were made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(value, Tensor) and function._schema.returns and not _is_given(value, args, kwargs):
                storage = value.untyped_storage()
                if storage._cdata not in self.seen:
                    self.seen.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self._release, storage._cdata, storage.nbytes())
        return result

    def _release(self, identity: int, size: int) -> None:
        self.seen.discard(identity)
        self.now -= size


def _is_given(value: Tensor, args, kwargs) -> bool:
    """Whether the result lies in the storage of an argument: a view, or an operation in place."""
    given = [entry for entry in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(entry, Tensor)]
    return any(value.untyped_storage()._cdata == entry.untyped_storage()._cdata for entry in given)


@BOTH
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_step_over_a_large_tensor_takes_little_memory(kind, memory_format, monkeypatch):
    """8 MiB of parameters, in chunks as much smaller than usual: a second float32 copy of any of them would show."""
    monkeypatch.setattr(chunks, "CHUNK_VALUES", chunks.CHUNK_VALUES // 4)
    plan_chunks.cache_clear()
    parameter = nn.Parameter(torch.randn(512, 512, 2, 4).to(memory_format=memory_format))
    parameter.grad = torch.ones_like(parameter)
    optimizer = kind([parameter], **SETTINGS[kind])
    parameter.grad *= 0.5
    with torch.no_grad():
        optimizer.step()
        with TransientMemory() as memory:
            optimizer.step()
    plan_chunks.cache_clear()
    assert 2 * 2**20 < memory.most < 8 * 2**20


@BOTH
def test_a_scaler_that_finds_an_overflow_leaves_all_as_it_was(kind):
    parameters = make_parameters()
    optimizer = kind(parameters, **SETTINGS[kind], **ALL_8)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    expected = make_parameters()
    reference = kind(expected, **SETTINGS[kind], **ALL_8)
    for number, gradients in enumerate(gradients_of(parameters, 4)):
        for one, other, gradient in zip(parameters, expected, gradients, strict=True):
            one.grad, other.grad = gradient * scaler.scale(torch.ones(())), gradient
        if number == 2:
            parameters[1].grad[0, 0] = math.inf
            before = copy.deepcopy(optimizer.state_dict())
        else:
            reference.step()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, 1e9)
        scaler.step(optimizer)
        scaler.update()
        if number == 2:
            assert scaler.get_scale() == 4.0
            after = optimizer.state_dict()["state"]
            assert all(
                torch.equal(torch.as_tensor(value), torch.as_tensor(after[key][name]))
                for key, state in before["state"].items()
                for name, value in state.items()
            )
    assert all(torch.equal(one, other) for one, other in zip(parameters, expected, strict=True))


@BOTH
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("sizes", [ALL_8, ALL_32], ids=["8 bits", "32 bits"])
def test_a_gradient_that_is_not_finite_shows_as_with_torch(kind, bad, sizes):
    parameters = make_parameters()
    optimizer = kind(parameters, **SETTINGS[kind], **sizes)
    run(optimizer, parameters, steps=2)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    parameters[1].grad[2, 3] = bad
    optimizer.step()
    lost = ~torch.isfinite(parameters[1])
    assert lost.nonzero().tolist() == [[2, 3]]
    for _ in range(2):
        optimizer.step()
    assert not torch.isfinite(parameters[1][2, 3])
    assert torch.isfinite(parameters[1].flatten()[32:]).all(), "the blocks after the one it is in"
    assert all(torch.isfinite(parameter).all() for index, parameter in enumerate(parameters) if index != 1)


@BOTH
@pytest.mark.parametrize(
    "spoil",
    [lambda gradient: gradient.to_sparse(), lambda gradient: gradient.to(torch.complex64)],
    ids=["sparse", "complex"],
)
def test_gradients_that_are_refused_change_nothing(kind, spoil: Callable[[Tensor], Tensor]):
    good = nn.Parameter(torch.ones(3))
    gradient = spoil(torch.ones(4))
    bad = nn.Parameter(torch.ones(4, dtype=gradient.dtype))
    optimizer = kind([good, bad], lr=0.1)
    good.grad, bad.grad = torch.ones(3), gradient
    with pytest.raises(
        RuntimeError, match="8-bit optimizers take no sparse and no complex gradients; use a 32-bit one"
    ):
        optimizer.step()
    assert torch.equal(good, torch.ones(3))
    assert not optimizer.state


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (SGD8bit, {"lr": -0.1}, "Invalid learning rate: -0.1"),
        (SGD8bit, {"lr": math.nan}, "Invalid learning rate: nan"),
        (SGD8bit, {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
        (SGD8bit, {"momentum": -0.5}, "Invalid momentum value: -0.5"),
        (SGD8bit, {"momentum": 0.0}, "Nesterov momentum requires a momentum"),
        (AdamW8bit, {"lr": -0.1}, "Invalid learning rate: -0.1"),
        (AdamW8bit, {"eps": -1.0}, "Invalid epsilon value: -1.0"),
        (AdamW8bit, {"betas": (1.5, 0.9)}, "Invalid beta parameter at index 0: 1.5"),
        (AdamW8bit, {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
        (AdamW8bit, {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
        (SGD8bit, {"block_size": 0}, "Invalid block_size value: 0, expected 1 to"),
        (SGD8bit, {"block_size": 2**20 + 1}, "Invalid block_size value: 1048577, expected 1 to 1048576"),
        (AdamW8bit, {"block_size": 256.5}, "Invalid block_size value: 256.5"),
        (AdamW8bit, {"min_8bit_size": -1}, "Invalid min_8bit_size value: -1"),
    ],
)
def test_settings_that_make_no_sense(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(make_parameters(), **{**SETTINGS[kind], **changes})
    optimizer = kind(make_parameters(), **SETTINGS[kind])
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": make_parameters(), **changes})
    assert len(optimizer.param_groups) == 1
