"""What users put into a chain: reparametrised and shared layers, functions that do nothing, copies."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import pytest
import torch
from reversible_material import (
    FUNCTIONS,
    WIDTH,
    assert_bit_equal,
    assert_recomputed,
    chain_of,
    chain_with,
    network_and_frames,
    one_step,
    random_map,
    relative_error,
    sequence_of,
    weighted_sum,
    x_of,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from svtoolkit.memory import apply_strategy
from svtoolkit.reversible import AdditiveCoupling, Chain, ReversibleSequence, by_block

torch.set_num_threads(1)


def convolutions_of(module: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]


REPARAMETRISED = {
    "weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "weight_norm by hooks": weight_norm,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("change", REPARAMETRISED.values(), ids=REPARAMETRISED)
def test_reparametrised_convolutions(change, function):
    chain = chain_with(function)
    for layer in convolutions_of(chain[1]):
        change(layer)
    found = assert_recomputed(chain, x_of())
    assert any("original" in name or name.endswith("weight_g") for name in found.gradients)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_weights_made_by_hooks_are_made_anew_at_every_step(function):
    """A second step after the optimizer's: hooks of a depth-first function's layers are called, too."""
    chain = chain_with(function)
    for layer in convolutions_of(chain[1]):
        weight_norm(layer)
    apply_strategy(chain, "reversible")
    optimizer = torch.optim.SGD(chain.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        weighted_sum(chain(x_of())).backward()
        optimizer.step()
    assert_recomputed(chain, x_of())


class Tied(nn.Module):
    """A layer that may be of others, too, and one of its own."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared, self.own = shared, nn.Conv2d(WIDTH // 2, WIDTH // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.own(torch.tanh(self.shared(x)))


def tied_functions() -> Chain:
    layer = nn.Sequential(nn.BatchNorm2d(WIDTH // 2), nn.Conv2d(WIDTH // 2, WIDTH // 2, 3, padding=1))
    return Chain(ReversibleSequence(AdditiveCoupling(Tied(layer), Tied(layer)) for _ in range(2)))


def one_function_everywhere() -> Chain:
    function = FUNCTIONS["basic"](WIDTH // 2)
    return Chain(ReversibleSequence(AdditiveCoupling(function, function) for _ in range(2)))


def one_coupling_twice() -> Chain:
    coupling = AdditiveCoupling(FUNCTIONS["basic"](WIDTH // 2), FUNCTIONS["basic"](WIDTH // 2))
    return Chain(ReversibleSequence([coupling, coupling]))


def one_sequence_twice() -> Chain:
    sequence = sequence_of(1, WIDTH)
    return Chain(sequence, nn.Tanh(), sequence)


def one_weight_in_two_layers() -> Chain:
    chain = chain_of(2, WIDTH)
    chain[0][1].g[0].conv.weight = chain[0][0].f[1].conv.weight
    return chain


TIES = [tied_functions, one_function_everywhere, one_coupling_twice, one_sequence_twice, one_weight_in_two_layers]


@pytest.mark.parametrize("make", TIES)
def test_shared_modules(make):
    torch.manual_seed(1)
    assert_recomputed(make().double(), x_of())


class Constant(nn.Module):
    """A parameter, the same everywhere: the gradient of its input is zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.linspace(-1, 1, channels).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.value.expand_as(x)


class Zeros(nn.Module):
    """A result without gradient, and a parameter that is not used."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


class Detached(nn.Conv2d):
    """A result that depends on its input and has no gradient."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class Partly(nn.Module):
    """Depends on one of its parameters, on a buffer, and on its input only in places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.used, self.unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        self.register_buffer("mask", (torch.arange(channels) % 2).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.used * self.mask * x.sin()


IDLE = {
    "nothing": lambda channels: nn.Identity(),
    "a constant": Constant,
    "zeros": Zeros,
    "detached": Detached,
    "partly": Partly,
}


@pytest.mark.parametrize("first", IDLE.values(), ids=IDLE)
@pytest.mark.parametrize("second", [IDLE["nothing"], FUNCTIONS["basic"]], ids=["nothing", "basic"])
def test_functions_that_do_little(first, second):
    torch.manual_seed(1)
    chain = Chain(sequence_of(2, WIDTH, first, second), nn.Conv2d(WIDTH, 2, 1)).double()
    assert_recomputed(chain, x_of())
    stored, found = (one_step(chain, x_of(), strategy, exact=False) for strategy in ("store", "reversible"))
    assert relative_error(found, stored) < 1e-12


def test_a_function_that_is_normalised_anew_at_every_evaluation_is_frozen_first():
    """Spectral norm iterates in training mode: its weight is another one each time; in evaluation mode it stays."""
    chain = chain_with(lambda channels: spectral_norm(nn.Conv2d(channels, channels, 1)))
    chain(x_of())
    assert_recomputed(chain.eval(), x_of())


def test_copies_and_pickles_train_as_their_original():
    network, x = network_and_frames()
    apply_strategy(network, "reversible", exact_bits=11)
    weighted_sum(network(x)).backward()  # something has been run
    network.zero_grad()
    expected = one_step(network, x, "reversible", bits=11)
    for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert [stage.planner for stage in copied.stages] == [by_block] * 4
        sequences = [module for module in copied.modules() if isinstance(module, ReversibleSequence)]
        assert len(sequences) == 4
        assert all(sequence.exact and sequence.exact_bits == 11 for sequence in sequences)
        assert_bit_equal(one_step(copied, x, "reversible", bits=11), expected)


def test_the_state_of_a_network_knows_no_strategy():
    network, _ = network_and_frames()
    apply_strategy(network, "store")
    stored = copy.deepcopy(network.state_dict())
    apply_strategy(network, "reversible")
    state = network.state_dict()
    assert list(state) == list(stored)
    assert all(torch.equal(tensor, stored[name]) for name, tensor in state.items())
    copied, _ = network_and_frames()
    assert copied.load_state_dict(state)
    assert not any(stage.planner for stage in copied.stages)


def test_a_module_that_modifies_its_input_is_refused():
    chain = Chain(sequence_of(1, WIDTH), nn.ReLU(inplace=True), nn.Conv2d(WIDTH, 2, 1))
    chain.planner = by_block
    with pytest.raises(RuntimeError, match="ReLU modifies its input in place, which nothing could be recomputed from"):
        chain(random_map(2, WIDTH, 6, 8))
    chain.planner = None
    assert chain(random_map(2, WIDTH, 6, 8)).requires_grad


def test_functions_are_evaluated_twice_and_no_more():
    counts: Counter[str] = Counter()

    class Counted(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            counts["with gradient" if torch.is_grad_enabled() else "without"] += 1
            return super().forward(x)

    chain = chain_of(3, WIDTH, lambda channels: Counted(channels, channels, 1))
    apply_strategy(chain, "reversible")
    weighted_sum(chain(random_map(2, WIDTH, 6, 8))).backward()
    assert counts == {"without": 6, "with gradient": 6}
