"""A chain that recomputes: the gradients of stored activations, whatever it is made of and however deep."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from reversible_material import (
    FUNCTIONS,
    assert_recomputed,
    assert_same_buffers,
    chain_of,
    norms_of,
    one_step,
    random_map,
    relative_error,
    sequence_of,
    settle_norms,
    tiny_network,
    weighted_sum,
)
from torch import Tensor, nn

from svtoolkit.memory import apply_strategy
from svtoolkit.models.recomputed_blocks import ConvNormRelu, RecomputedBasicBlock, SqueezedTransition
from svtoolkit.models.residual_functions import DepthFirstFunction
from svtoolkit.reversible import Chain, by_block, run_in_chain

torch.set_num_threads(1)

DEPTH = 64
WIDTH = 8
# what a chain may be made of: 8 channels in, any number out
CHAINS: dict[str, Callable[[], list[nn.Module]]] = {
    "a sequence": lambda: [sequence_of(2, WIDTH)],
    "two sequences": lambda: [sequence_of(1, WIDTH), sequence_of(2, WIDTH)],
    "a sequence of nothing": lambda: [sequence_of(0, WIDTH), nn.Conv2d(WIDTH, 4, 1)],
    "block, sequence": lambda: [RecomputedBasicBlock(WIDTH, 12, 2), sequence_of(2, 12)],
    "sequence, transition, sequence": lambda: [
        sequence_of(2, WIDTH),
        SqueezedTransition(WIDTH, 16),
        sequence_of(1, 16),
    ],
    "two ordinary ones between": lambda: [
        sequence_of(1, WIDTH),
        nn.Conv2d(WIDTH, 6, 3),
        nn.BatchNorm2d(6),
        sequence_of(1, 6),
        nn.Tanh(),
    ],
    "no parameters between": lambda: [sequence_of(1, WIDTH), nn.PixelUnshuffle(2), sequence_of(1, 4 * WIDTH)],
    "the identity at the ends": lambda: [nn.Identity(), sequence_of(1, WIDTH), nn.Identity()],
    "views": lambda: [nn.Unflatten(1, (WIDTH, 1)), nn.Flatten(1, 2), sequence_of(1, WIDTH), nn.Flatten()],
    "a chain within": lambda: [Chain(ConvNormRelu(WIDTH, 6), sequence_of(2, 6)), sequence_of(1, 6)],
    "a module without gradient": lambda: [sequence_of(1, WIDTH), nn.Identity().requires_grad_(False), nn.ReLU()],
}


def made(parts: Callable[[], list[nn.Module]], dtype: torch.dtype = torch.float32) -> Chain:
    torch.manual_seed(1)
    return settle_norms(Chain(*parts())).to(dtype)


@pytest.mark.parametrize("learns_input", [True, False], ids=["input learns", "input given"])
@pytest.mark.parametrize(
    ("dtype", "cast"), [(torch.float64, None), (torch.float32, None), (torch.float32, torch.bfloat16)]
)
@pytest.mark.parametrize("parts", CHAINS.values(), ids=CHAINS)
def test_gradients_are_those_of_stored_activations(parts, dtype, cast, learns_input):
    chain, x = made(parts, dtype), random_map(3, WIDTH, 6, 8, dtype=dtype)
    assert_recomputed(chain, x, cast=cast, learns_input=learns_input)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize(("bins", "frames", "batch"), [(5, 7, 1), (1, 9, 2), (6, 8, 2)])
def test_every_function_in_any_shape(function, bins, frames, batch):
    chain = settle_norms(chain_of(3, 16, function)).double()
    assert_recomputed(chain, random_map(batch, 16, bins, frames, dtype=torch.float64))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
def test_sixty_four_couplings_without_exact_arithmetic(dtype, tolerance):
    chain, x = chain_of(DEPTH, 16).to(dtype), random_map(2, 16, 6, 7, dtype=dtype)
    for norm in norms_of(chain):  # no ReLU near zero, where a rounding error changes its side
        norm.bias.data[::2], norm.bias.data[1::2] = 8.0, -8.0
    stored, found = (one_step(chain, x, strategy, exact=False) for strategy in ("store", "reversible"))
    assert 0 < relative_error(found, stored) < tolerance
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)


def in_two_groups(channels: int) -> DepthFirstFunction:
    return DepthFirstFunction(channels, groups=2)


@pytest.mark.parametrize(
    ("function", "cast"),
    [(FUNCTIONS["basic"], None), (FUNCTIONS["basic"], torch.bfloat16), (in_two_groups, torch.bfloat16)],
)
def test_sixty_four_couplings_to_the_bit(function, cast):
    chain, x = chain_of(DEPTH, 16, function), random_map(1, 16, 12, 20)
    assert_recomputed(chain, x, cast=cast)


def test_sixty_four_couplings_without_exact_arithmetic_are_noise_under_autocast():
    """What exact arithmetic is for; and how it is known that the tests of it can fail."""
    chain, x = chain_of(DEPTH, 16), random_map(1, 16, 12, 20)
    options = {"cast": torch.bfloat16, "exact": False}
    stored, found = (one_step(chain, x, strategy, **options) for strategy in ("store", "reversible"))
    assert torch.equal(found.value, stored.value)
    assert relative_error(found, stored) > 1e-2


@pytest.mark.parametrize("bits", [8, 11, 14])
def test_any_grid(bits):
    chain, x = chain_of(4, WIDTH), random_map(2, WIDTH, 6, 8)
    found = assert_recomputed(chain, x, bits=bits)
    assert not torch.equal(found.value, one_step(chain, x, bits=bits - 1).value)


def nodes_behind(value: Tensor) -> list[str]:
    """Names of the steps of autograd that a value came from, leaves left out."""
    pending, seen = [value.grad_fn], []
    while pending:
        node = pending.pop()
        if node is not None and node not in seen and node.name() != "torch::autograd::AccumulateGrad":
            seen.append(node)
            pending.extend(parent for parent, _ in node.next_functions)
    return [node.name() for node in seen]


def recomputing(*parts: nn.Module) -> Chain:
    chain = Chain(*parts)
    chain.planner = by_block
    return chain


def test_neighbouring_chains_are_one_step_of_autograd():
    chains = [
        recomputing(ConvNormRelu(1, WIDTH)),
        recomputing(sequence_of(1, WIDTH)),
        recomputing(sequence_of(1, WIDTH)),
    ]
    x = random_map(2, 1, 6, 8)
    assert nodes_behind(run_in_chain(chains, x)) == ["_RecomputedBackward"]
    chains[1].planner = None
    assert nodes_behind(run_in_chain(chains, x)).count("_RecomputedBackward") == 2


def test_a_chain_with_hooks_is_called_and_a_step_of_its_own():
    chains, seen = [recomputing(sequence_of(1, WIDTH)) for _ in range(3)], []
    chains[1].register_forward_hook(lambda chain, given, result: seen.append(chain))
    assert nodes_behind(run_in_chain(chains, random_map(2, WIDTH, 6, 8))) == ["_RecomputedBackward"] * 3
    assert seen == [chains[1]]


def test_other_modules_stand_between():
    chain = recomputing(sequence_of(1, WIDTH))
    value = run_in_chain([chain, nn.Sigmoid(), chain], random_map(2, WIDTH, 6, 8))
    assert nodes_behind(value) == ["_RecomputedBackward", "SigmoidBackward0", "_RecomputedBackward"]


def test_nothing_to_run_is_the_input():
    x = random_map(2, WIDTH, 6, 8)
    assert run_in_chain([], x) is x
    assert recomputing()(x) is x


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("training", [True, False])
def test_without_gradient_nothing_is_kept(context, training):
    network, x = tiny_network().train(training), random_map(2, 12, 16)
    values = []
    for strategy in ("store", "reversible"):
        apply_strategy(network, strategy)
        with context():
            values.append(network(x))
    assert values[1].grad_fn is None
    assert not values[1].requires_grad
    # running statistics moved in between, but a batch is normalised by its own
    assert torch.equal(*values)


def test_in_evaluation_mode_gradients_are_right_and_statistics_stay():
    network = settle_norms(tiny_network()).double().eval()
    found = assert_recomputed(network, random_map(2, 12, 16, dtype=torch.float64))
    assert all(torch.equal(buffer, found.buffers[name]) for name, buffer in network.named_buffers())


def test_a_frozen_front_is_not_evaluated_again():
    """Nothing of it can learn: backward ends where learning does, as with stored activations."""
    calls: list[str] = []

    class Counted(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            calls.append("called")
            return super().forward(x)

    front = Counted(1, WIDTH, 1).requires_grad_(False)
    chain = recomputing(
        front, sequence_of(1, WIDTH).requires_grad_(False), sequence_of(1, WIDTH), nn.Conv2d(WIDTH, 2, 1)
    )
    x = random_map(2, 1, 6, 8)
    weighted_sum(chain(x)).backward()
    assert len(calls) == 1
    assert_recomputed(chain, x, learns_input=False)
    calls.clear()
    weighted_sum(chain(x.requires_grad_())).backward()
    assert len(calls) == 2
    assert x.grad.any()
