"""Parameters, gradients and settings that the tests of the 8-bit optimizers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from svtoolkit.optim import AdamW8bit, SGD8bit

SGD = {"lr": 0.3, "weight_decay": 1e-2, "momentum": 0.8, "nesterov": True}
ADAMW = {"lr": 0.02, "weight_decay": 0.07, "betas": (0.7, 0.95), "eps": 1e-6}
SETTINGS = {SGD8bit: SGD, AdamW8bit: ADAMW}
THIRTY_TWO = {SGD8bit: torch.optim.SGD, AdamW8bit: torch.optim.AdamW}
BOTH = pytest.mark.parametrize("kind", [SGD8bit, AdamW8bit], ids=["sgd", "adamw"])
ALL_32 = {"min_8bit_size": 10**9}
ALL_8 = {"min_8bit_size": 0, "block_size": 16}


def make_parameters(dtype: torch.dtype = torch.float32, memory_format: torch.memory_format = torch.contiguous_format):
    """Five parameters: 4-d, 2-d, 1-d, a scalar, and one that fills several chunks."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 4, 2, 2), (5, 7), (9,), (), (6, 7, 3, 3)]
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [nn.Parameter(t.to(memory_format=memory_format) if t.dim() == 4 else t) for t in tensors]


def gradients_of(parameters: list[nn.Parameter], steps: int) -> Iterator[list[Tensor]]:
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        yield [torch.randn(p.shape, generator=generator).to(p.dtype) for p in parameters]


def run(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], steps: int) -> list[Tensor]:
    for gradients in gradients_of(parameters, steps):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def assert_all_close(found: list[Tensor], expected: list[Tensor], rtol: float, atol: float = 0.0) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
