"""Networks of other toolkits as if they had been trained: no weight and no statistic is at its initial value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

import torch
from network_material import NARROW
from torch import Tensor, nn


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


@contextmanager
def shallow_campplus(module: ModuleType) -> Iterator[None]:
    """Within, their CAMPPlus has the few layers of ``NARROW``: it says 12, 24 and 16 in a loop of its constructor."""
    layers, dilations = zip(*NARROW["campplus"]["blocks"], strict=True)

    def zipped(*lists: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
        theirs, kernels, said = lists
        assert (theirs, said) == ((12, 24, 16), dilations)
        return zip(layers, kernels, said, strict=True)

    with mock.patch.object(module, "zip", zipped, create=True):
        yield


@contextmanager
def undrawn() -> Iterator[None]:
    """Within, initial weights are not drawn: on the meta device torch would import its compiler, for seconds."""
    names = ("normal_", "trunc_normal_", "kaiming_normal_", "xavier_normal_")
    with mock.patch.multiple(nn.init, **{name: lambda tensor, *_, **__: tensor for name in names}):
        yield


def assert_same_embeddings(ours: nn.Module, theirs: nn.Module, frames: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest value; a tuple of theirs ends with the embedding."""
    with torch.no_grad():
        found, expected = ours(frames), theirs(frames.clone())
    expected = expected[-1] if isinstance(expected, tuple) else expected
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


def assert_same_of_all_lengths(ours: nn.Module, theirs: nn.Module, bins: int) -> None:
    """In evaluation: one utterance and three, of 0.6 s, 3 s and 20 s."""
    for batch, frames in ((1, 58), (3, 58), (1, 315), (3, 315), (1, 1998)):
        assert_same_embeddings(ours.eval(), theirs.eval(), torch.randn(batch, frames, bins))


def assert_same_in_training(
    ours: nn.Module, theirs: nn.Module, bins: int, renamed: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
) -> None:
    """Embeddings, and what BatchNorm has learnt after them; ``renamed`` gives our weights their names."""
    assert_same_embeddings(ours.train(), theirs.train(), torch.randn(8, 58, bins))
    after = renamed(ours.state_dict())
    assert set(after) == set(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(after[name], tensor, rtol=1e-5, atol=1e-6)
