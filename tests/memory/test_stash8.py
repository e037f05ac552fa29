"""memory=stash8: what 8 bits a value lose, and all that memory=checkpoint promises beside the numbers themselves."""

from __future__ import annotations

import copy
from functools import partial
from itertools import accumulate

import pytest
import torch
from network_material import narrow
from reversible_material import Step, assert_same_buffers, one_step, random_map, relative_error, tiny_network
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model
from svtoolkit.models.blocks import BasicBlock
from svtoolkit.reversible import Chain, EightBits, by_block

torch.set_num_threads(1)


def resnet() -> nn.Module:
    return build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4)


def rounded(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The nearest of 256 values between the lowest and the highest over ``dims``."""
    low, high = x.double().amin(dims, keepdim=True), x.double().amax(dims, keepdim=True)
    return low + ((x.double() - low) * 255 / (high - low)).round() * (high - low) / 255


@pytest.mark.parametrize(
    ("shape", "by_utterance", "dims"),
    [
        ((3, 4, 5, 8), True, (2, 3)),
        ((3, 4, 40), True, (2,)),
        ((3, 4, 5, 8), False, (0, 2, 3)),
        ((3, 40), True, (1,)),
        ((3, 4, 8), True, (1, 2)),  # as many scales as eighths of values
    ],
)
def test_every_value_is_the_nearest(shape, by_utterance, dims):
    stash, x = EightBits(by_utterance), random_map(*shape) * 10 + 3
    kept = stash.pack(x)
    assert kept.codes.dtype is torch.uint8
    torch.testing.assert_close(stash.unpack(kept).double(), rounded(x, dims), rtol=0, atol=1e-5)


def test_a_relus_zeros_a_constant_and_the_extremes_are_exact():
    x = random_map(2, 3, 50).relu()
    x[1, 2] = 0.3
    found = EightBits().unpack(EightBits().pack(x))
    assert torch.equal(found[x == 0], x[x == 0])
    assert torch.equal(found[1, 2], x[1, 2])
    torch.testing.assert_close(found.amax(2), x.amax(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_type_and_layout_come_back(dtype):
    x = random_map(2, 8, 6, 7).to(dtype).to(memory_format=torch.channels_last)
    found = EightBits().unpack(EightBits().pack(x))
    assert (found.dtype, found.stride()) == (dtype, x.stride())
    torch.testing.assert_close(found, x, rtol=0, atol=0.05)


@pytest.mark.parametrize("bad", [float("inf"), 3e38, float("nan")])
def test_an_overflow_is_not_hidden(bad):
    x = random_map(2, 3, 50)
    x[0, 1, 7], x[0, 1, 8] = bad, -bad
    found = EightBits().unpack(EightBits().pack(x))
    assert not found[0, 1].isfinite().any()
    assert found[1].isfinite().all()


def stashed_by_hand(chain: Chain, x: Tensor) -> Step:
    """Gradients of blocks at rounded inputs, one block after the other, from an exact forward pass."""
    chain.planner = None
    inputs = [x]
    for block in chain[:-1]:
        inputs.append(copy.deepcopy(block)(inputs[-1]).detach())
    value = copy.deepcopy(chain[-1])(inputs[-1]).detach()
    gradient = torch.arange(value.numel(), dtype=value.dtype).cos().view_as(value)
    gradients = {}
    for number in reversed(range(len(chain))):
        block = copy.deepcopy(chain[number])
        leaf = rounded(inputs[number], (2, 3)).requires_grad_()
        sources = [leaf, *block.parameters()]
        gradient, *found = torch.autograd.grad(block(leaf), sources, gradient)
        names = [name for name, _ in block.named_parameters()]
        gradients |= {f"{number}.{name}": each for name, each in zip(names, found, strict=True)}
    return Step(value, {"input": gradient, **{name: gradients[name] for name, _ in chain.named_parameters()}}, {})


def test_gradients_are_those_of_blocks_at_rounded_inputs():
    torch.manual_seed(0)
    chain, x = Chain(*(BasicBlock(4, 4) for _ in range(4))).double(), random_map(3, 4, 6, 8, dtype=torch.float64)
    found, expected = one_step(chain, x, "stash8"), stashed_by_hand(chain, x)
    assert torch.equal(found.value, expected.value)
    assert relative_error(found, expected) < 1e-12
    assert relative_error(found, one_step(chain, x, "store")) > 1e-4


@pytest.mark.parametrize(
    "name", ["resnet10", "ecapa_tdnn_c512", "sb_xvector", "eres2netv2", "titanet_small", "redimnet2_b4"]
)
def test_values_and_statistics_are_those_of_stored_activations_and_gradients_nearly(name):
    torch.manual_seed(0)
    network = resnet() if name == "resnet10" else narrow(name, num_bins=16, embedding_dim=8)
    frames = random_map(3, 24, 16)
    stored, found = one_step(network, frames, "store"), one_step(network, frames, "stash8")
    assert torch.equal(found.value, stored.value)
    assert_same_buffers(found, stored)
    assert 0 < relative_error(found, stored) < 0.5


class Dropped(nn.Module):
    """Blocks that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Chain(*(nn.Sequential(nn.Linear(40, 40), nn.Dropout(0.5), nn.Tanh()) for _ in range(5)))

    def forward(self, frames: Tensor) -> Tensor:
        return self.blocks(frames)


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
def test_random_numbers_are_drawn_again_in_the_precision_of_forward(cast):
    """Another mask would be off by more than its own length."""
    torch.manual_seed(0)
    network, frames = Dropped(), random_map(3, 24, 40)
    stored = one_step(network, frames, "store", cast=cast)
    assert relative_error(one_step(network, frames, "stash8", cast=cast), stored) < 0.02


def test_inside_a_checkpoint_and_in_a_graph_that_is_kept():
    network, frames = resnet(), random_map(2, 24, 16)
    weight = network.stages[0][0].conv1.weight
    apply_strategy(network, "stash8")
    network.eval()
    value = network(frames).sum()
    first, second = (torch.autograd.grad(value, [weight], retain_graph=keep)[0] for keep in (True, False))
    nested = torch.utils.checkpoint.checkpoint(network, frames, use_reentrant=False).sum()
    assert torch.equal(first, second)
    assert torch.equal(torch.autograd.grad(nested, [weight])[0], first)
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(value, [weight])


def test_frozen_blocks_at_the_beginning():
    network, frames = resnet(), random_map(3, 24, 16)
    for part in (network.stem, *network.stages[:2]):
        part.requires_grad_(False)
    stored = one_step(network, frames, "store", learns_input=False)
    assert relative_error(one_step(network, frames, "stash8", learns_input=False), stored) < 0.5


def test_memory_of_64_blocks():
    """A quarter of the inputs that memory=checkpoint keeps, beside scales and what a block needs."""
    chain, frames = Chain(*(BasicBlock(4, 4) for _ in range(64))), random_map(4, 4, 16, 40)
    peaks = []
    for stash in (None, EightBits()):
        chain.planner = partial(by_block, stash=stash)
        with MemoryLedger() as ledger:
            chain(frames).sum().backward()
        chain.zero_grad()
        peaks.append(max(accumulate(change.difference for change in ledger.changes)) / (4 * frames.numel()))
    whole, codes = peaks
    assert 64 < whole < 64 + 16
    assert 16 < codes < 16 + 16
    assert 46 < whole - codes < 48, "less 64 pairs of scales, 512 bytes each"


def test_stages_are_one_run_and_another_strategy_ends_it():
    network, frames = resnet(), random_map(2, 24, 16)
    apply_strategy(network, "stash8")
    copied = copy.deepcopy(network)
    apply_strategy(network, "checkpoint", segments="blocks")
    assert {module.planner for module in network.modules() if isinstance(module, Chain)} == {by_block}
    assert runs_of(copied, frames) == runs_of(network, frames) == 1
    assert relative_error(one_step(network, frames, "checkpoint"), one_step(network, frames, "store")) < 1e-5


def runs_of(network: nn.Module, frames: Tensor) -> int:
    """Steps of autograd that recompute."""
    seen, pending = set(), [network(frames).grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending.extend(parent for parent, _ in node.next_functions)
    return sum(node.name() == "_RecomputedBackward" for node in seen)


@pytest.mark.parametrize("network", [tiny_network, lambda: nn.Linear(2, 2)])
def test_what_it_cannot_serve_is_refused_by_its_own_name(network):
    with pytest.raises(UserError, match=r"^memory=stash8 .*choose memory="):
        apply_strategy(network(), "stash8")
