"""Networks of other toolkits as if they had been trained: no weight and no statistic is at its initial value."""

from __future__ import annotations

import torch
from torch import nn


def randomise(network: nn.Module, seed: int = 0) -> nn.Module:
    """Give BatchNorms scales, shifts and statistics of their own, and vary whatever begins as a constant."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        if bool((parameter == parameter.flatten()[0]).all()):
            parameter.data += torch.empty_like(parameter).uniform_(-0.3, 0.3, generator=generator)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.uniform_(-0.3, 0.3, generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
            module.num_batches_tracked.fill_(1234)
    return network


def assert_same_embeddings(ours: nn.Module, theirs: nn.Module, frames: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest value; a tuple of theirs ends with the embedding."""
    with torch.no_grad():
        found, expected = ours(frames), theirs(frames.clone())
    expected = expected[-1] if isinstance(expected, tuple) else expected
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
