"""Reversible networks under test: small chains, one training step by either strategy, and how two steps compare.

"Stored" is the same network under ``apply_strategy(network, "store")``: plain autograd.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from svtoolkit.memory import apply_strategy
from svtoolkit.models import SpeakerNetwork
from svtoolkit.models.residual_functions import DepthFirstFunction, basic_function, bottleneck_function
from svtoolkit.models.revnet import build_revnet
from svtoolkit.reversible import AdditiveCoupling, Chain, ReversibleSequence, Sharing, by_block, share_values, snap
from svtoolkit.reversible.coupling import split_streams
from svtoolkit.reversible.manual_backward import recompute_backward
from svtoolkit.reversible.plans import Planner
from svtoolkit.reversible.recomputation import AutocastState, ParameterGradients

INPUT = "input"
"""Name of the input among the gradients of a step."""


@dataclass
class Step:
    """What one training step makes of a module: its value, gradients and buffers by name."""

    value: Tensor
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def one_step(
    module: nn.Module,
    x: Tensor,
    strategy: str = "reversible",
    *,
    exact: bool = True,
    bits: int = 14,
    cast: torch.dtype | None = None,
    seed: int = 0,
    learns_input: bool = True,
    planner: Planner | None = None,
    sharing: Sharing | None = None,
    **settings: object,
) -> Step:
    """Forward and backward pass from the module's present state, which is put back.

    Args:
        cast: under autocast to this type; None: without.
        seed: of the random numbers that the module draws.
        learns_input: whether the input has a gradient, too.
        planner: of all chains, under ``store``.
        sharing: of a network that shares values, under ``store``.
        settings: further ones of the strategy.
    """
    apply_strategy(module, strategy, exact=exact, exact_bits=bits, **settings)
    for chain in module.modules():
        if isinstance(chain, Chain) and planner is not None:
            chain.planner = planner
    if sharing is not None:
        share_values(module, sharing)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.zero_grad()
    x = x.clone().requires_grad_(learns_input)
    torch.manual_seed(seed)
    with torch.autocast("cpu", dtype=cast, enabled=cast is not None):
        # A copy, for autocast remembers casts of leaves: their gradients would be added up in the narrow type.
        value = module(x.clone())
    weighted_sum(value).backward()
    gradients = {INPUT: x.grad} if learns_input else {}
    gradients |= {name: parameter.grad for name, parameter in module.named_parameters()}
    step = Step(value.detach(), gradients, {name: buffer.clone() for name, buffer in module.named_buffers()})
    module.zero_grad()
    for name, buffer in module.named_buffers():
        buffer.copy_(before[name])
    return step


def weighted_sum(value: Tensor) -> Tensor:
    """A loss whose gradient is another number everywhere."""
    return (value * torch.arange(value.numel(), dtype=value.dtype).cos().view_as(value)).sum()


def relative_error(found: Step, expected: Step) -> float:
    """Distance of all gradients together, relative to their length."""
    assert_same_learn(found, expected)
    pairs = [(found.gradients[name].double(), g.double()) for name, g in expected.gradients.items() if g is not None]
    distance = sum((a - b).square().sum() for a, b in pairs)
    return float((distance / sum(b.square().sum() for _, b in pairs)).sqrt())


def assert_same_learn(found: Step, expected: Step) -> None:
    """The same names have a gradient, and a finite one that is not all zeros."""
    assert _learning(found) == _learning(expected)
    assert _learning(found), "nothing has a gradient"
    for name in _learning(found):
        assert expected.gradients[name].isfinite().all(), name
    assert any(expected.gradients[name].any() for name in _learning(found))


def _learning(step: Step) -> list[str]:
    return [name for name, gradient in step.gradients.items() if gradient is not None]


def assert_bit_equal(found: Step, expected: Step) -> None:
    """Value, gradients and buffers are the same numbers."""
    assert_same_learn(found, expected)
    assert torch.equal(found.value, expected.value)
    unequal = [n for n in _learning(expected) if not torch.equal(found.gradients[n], expected.gradients[n])]
    assert unequal == []
    assert_same_buffers(found, expected)


def assert_same_buffers(found: Step, expected: Step) -> None:
    assert found.buffers.keys() == expected.buffers.keys()
    assert [n for n, buffer in expected.buffers.items() if not torch.equal(buffer, found.buffers[n])] == []


def assert_recomputed(module: nn.Module, x: Tensor, **options) -> Step:
    """The reversible step is the stored one, to the bit."""
    stored = one_step(module, x, "store", **options)
    found = one_step(module, x, "reversible", **options)
    assert_bit_equal(found, stored)
    return found


def sequence_of(
    blocks: int, width: int, function: Callable[[int], nn.Module] = basic_function, other: Callable | None = None
) -> ReversibleSequence:
    """Couplings of ``function`` (F) and ``other`` (G; None: the same) on two streams of width / 2."""
    half, other = width // 2, other or function
    return ReversibleSequence(AdditiveCoupling(function(half), other(half)) for _ in range(blocks))


def chain_of(blocks: int, width: int, function: Callable[[int], nn.Module] = basic_function, **options) -> Chain:
    """A chain of one reversible sequence, with the same weights on every call."""
    torch.manual_seed(1)
    return Chain(sequence_of(blocks, width, function, **options))


def depth_first(channels: int) -> DepthFirstFunction:
    """Its hidden channels in four groups."""
    return DepthFirstFunction(channels, groups=4)


FUNCTIONS = {"basic": basic_function, "bottleneck": bottleneck_function, "depth_first": depth_first}


def noisy(channels: int) -> nn.Module:
    """A residual function as users write them: generic layers, a bias, dropout."""
    return nn.Sequential(
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.Dropout(0.3),
    )


def tiny_network(kind: str = "II", blocks: Iterable[int] = (1, 1, 2, 1), bins: int = 16) -> SpeakerNetwork:
    """A speaker network of a registry's family with few weights, the same on every call."""
    torch.manual_seed(2)
    widths = {"kind": kind, "block": "basic", "channels": (8, 8, 16, 16), "blocks": tuple(blocks)}
    return build_revnet(num_bins=bins, embedding_dim=8, **widths)


def random_map(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 3) -> Tensor:
    """Standard normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def settle_norms(module: nn.Module) -> nn.Module:
    """Weights, biases and running statistics of norms as training leaves them, not all 1 and 0."""
    generator = torch.Generator().manual_seed(4)
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._NormBase):
            for tensor, low, high in (
                (layer.weight, 0.5, 1.5),
                (layer.bias, -0.5, 0.5),
                (layer.running_mean, -0.5, 0.5),
                (layer.running_var, 0.5, 1.5),
            ):
                if tensor is not None:
                    tensor.data.copy_(low + (high - low) * torch.rand(tensor.shape, generator=generator))
    return module


WIDTH = 8
"""Channels of the chain that is made of given functions."""


def x_of(width: int = WIDTH) -> Tensor:
    """A map of three utterances in float64."""
    return random_map(3, width, 6, 8, dtype=torch.float64)


def chain_with(function: Callable[[int], nn.Module]) -> Chain:
    """Residual functions as given, between ordinary modules."""
    torch.manual_seed(1)
    layers = (nn.Conv2d(WIDTH, WIDTH, 1), sequence_of(2, WIDTH, function), nn.Tanh())
    return settle_norms(Chain(*layers)).double()


def norms_of(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]


def assert_manual_is_autograd(module: nn.Module, x: Tensor, *, has_hook: bool = False) -> None:
    """``recompute_backward`` is autograd on the module, to the bit whatever the type; statistics stay.

    Args:
        has_hook: whether the module is a residual function, whose value is handed to a hook.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    wanted = [parameter for parameter in module.parameters() if parameter.requires_grad]
    leaf = x.detach().clone().requires_grad_()
    value = module(leaf)
    grad_output = torch.empty_like(value).copy_(random_map(*value.shape, seed=5))  # in the layout of the value
    expected = torch.autograd.grad(value, [leaf, *wanted], grad_output)
    for name, buffer in module.named_buffers():
        buffer.copy_(before[name])

    gradients, given_values, given = ParameterGradients(wanted), [], grad_output.clone()
    with torch.no_grad():
        dx = recompute_backward(module, x, given, gradients, value_hook=given_values.append if has_hook else None)
    assert torch.equal(x, leaf)
    assert all(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())
    assert dx.dtype == x.dtype
    found = [dx, *gradients.in_order()]
    assert [torch.equal(one, other) for one, other in zip(found, expected, strict=True)] == [True] * len(expected)
    if has_hook:
        assert torch.equal(given, grad_output)  # of a residual function it is the other stream's, too
        assert torch.equal(*given_values, value)


def by_autograd(module: nn.Module, x: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor]:
    """Value, and gradient of the input."""
    leaf = x.detach().clone().requires_grad_()
    value = module(leaf)
    return value.detach(), torch.autograd.grad(value, leaf, grad_output.to(value.dtype))[0]


class Scale(nn.Module):
    """x -> factor * x, or a constant ``value`` where there is one."""

    def __init__(self, factor: float, value: float = 0.0) -> None:
        super().__init__()
        self.factor, self.value = factor, value

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x + self.value


def recovered(sequence: ReversibleSequence, x: Tensor, cast: torch.dtype | None) -> tuple[Tensor, Tensor, Tensor]:
    """What the sequence took in (on the grid, if it has one), its result, and the input as inverted from that."""
    with torch.no_grad(), torch.autocast("cpu", dtype=cast, enabled=cast is not None):
        autocast = AutocastState.capture(x.device)
    with torch.no_grad(), autocast.restored():
        y, record = sequence.run(x)
        streams = split_streams(y, record.stream_dtype)
        grad_output = tuple(torch.ones_like(stream) for stream in streams)
        sequence.invert_(streams, grad_output, record, ParameterGradients([]))
    taken = x.to(record.stream_dtype)
    return taken if record.bits is None else snap(taken, record.bits), y, torch.cat(streams, dim=1)


def distance(found: Tensor, expected: Tensor) -> float:
    """Of two tensors, relative to the length of the second."""
    return float(((found - expected).norm() / expected.norm()).detach())


def network_and_frames() -> tuple[SpeakerNetwork, Tensor]:
    return settle_norms(tiny_network()).double(), random_map(3, 12, 16, dtype=torch.float64)


def chain_and_map(*after: nn.Module) -> tuple[Chain, Tensor]:
    """A sequence in a chain that recomputes, and an input that learns."""
    chain = settle_norms(Chain(*chain_of(2, 8), *after)).double()
    chain.planner = by_block
    return chain, random_map(2, 8, 6, 8, dtype=torch.float64).requires_grad_()


def under(strategy: str, network: nn.Module) -> nn.Module:
    """A copy under a strategy."""
    network = copy.deepcopy(network)
    apply_strategy(network, strategy)
    return network


def stored_and_reversible(network: nn.Module) -> tuple[nn.Module, nn.Module]:
    return under("store", network), under("reversible", network)


def assert_same_gradients(found: nn.Module, expected: nn.Module) -> None:
    names = dict(expected.named_parameters())
    assert any(parameter.grad is not None for parameter in names.values())
    for name, parameter in found.named_parameters():
        assert (parameter.grad is None) == (names[name].grad is None), name
        if parameter.grad is not None:
            assert distance(parameter.grad, names[name].grad) < 1e-9, name
