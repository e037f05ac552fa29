"""Residual functions and chains that are inverted layer by layer, against autograd."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from reversible_material import (
    assert_bit_equal,
    assert_same_buffers,
    one_step,
    random_map,
    recovered,
    relative_error,
    settle_norms,
)
from torch import nn

from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models.invertible_functions import hybrid_function, in_place_function
from svtoolkit.reversible import (
    AdditiveCoupling,
    BatchPooling,
    BatchUnpooling,
    Chain,
    ChannelPooling,
    InvertibleBatchNorm2d,
    LayerwiseFunction,
    ReversibleSequence,
)
from svtoolkit.reversible.manual_backward import recompute_backward
from svtoolkit.reversible.recomputation import ParameterGradients

WIDTH = 8
FUNCTIONS = {"hybrid": hybrid_function, "in_place": in_place_function}


def function_of(kind: str, channels: int) -> LayerwiseFunction:
    return FUNCTIONS[kind](channels, slope=0.1, norm_floor=0.1)


def pooled_chain(kind: str = "hybrid") -> Chain:
    """Couplings between all poolings, on other channels after each."""
    torch.manual_seed(1)

    def coupling(width: int) -> AdditiveCoupling:
        return AdditiveCoupling(function_of(kind, width // 2), function_of(kind, width // 2))

    wide = 4 * WIDTH
    steps = (coupling(WIDTH), ChannelPooling(), coupling(wide), BatchPooling(), coupling(wide), BatchUnpooling())
    return settle_norms(Chain(ReversibleSequence(steps)))


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "frozen"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_are_those_of_stored_activations(kind, training, layout):
    """1e-9 in float64, and statistics move once; of odd sizes, too."""
    chain = pooled_chain(kind).double().train(training)
    x = random_map(3, WIDTH, 7, 9, dtype=torch.float64).contiguous(memory_format=layout)
    stored, found = one_step(chain, x, "store"), one_step(chain, x, "hybrid")
    assert torch.equal(found.value, stored.value)
    assert relative_error(found, stored) < 1e-9
    assert_same_buffers(found, stored)


@pytest.mark.parametrize("cast", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_noise_of_inversion_is_below_that_of_the_precision(kind, cast):
    """Streams are recovered bit for bit; what is inverted inside blocks is off by rounding, and does not leave them."""
    chain, x = pooled_chain(kind), random_map(3, WIDTH, 8, 12)
    stored, found = one_step(chain, x, "store", cast=cast), one_step(chain, x, "hybrid", cast=cast)
    assert torch.equal(found.value, stored.value)
    noise = relative_error(found, stored)
    assert noise < (2e-6 if cast is None else 0.2 * relative_error(stored, one_step(chain, x, "store")))
    assert noise > 0 or cast is not None


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
def test_poolings_are_inverted_bit_for_bit(cast):
    chain, x = pooled_chain(), random_map(3, WIDTH, 7, 9)
    taken, _, back = recovered(chain[0], x, cast)
    assert torch.equal(back, taken)


def test_reversible_recomputes_the_same_functions():
    """The other strategy on the same weights: bit for bit."""
    chain, x = pooled_chain(), random_map(3, WIDTH, 7, 9)
    assert_bit_equal(one_step(chain, x, "reversible"), one_step(chain, x, "store"))


def test_a_negative_weight_and_zero_learn_as_autograd_says():
    chain, x = pooled_chain().double(), random_map(3, WIDTH, 6, 8, dtype=torch.float64)
    for layer in chain.modules():
        if isinstance(layer, InvertibleBatchNorm2d):
            layer.weight.data[::2] *= -1
            layer.weight.data[1] = 0
    assert relative_error(one_step(chain, x, "hybrid"), one_step(chain, x, "store")) < 1e-9


def test_hooks_and_replaced_layers_are_for_autograd():
    function = function_of("hybrid", WIDTH)
    function.layerwise = True
    assert function.is_as_built()
    handle = function[2].first.register_forward_hook(lambda *given: None)
    assert not function.is_as_built()
    handle.remove()
    nn.utils.parametrize.register_parametrization(function[5].second, "weight", nn.Identity())
    assert not function.is_as_built()


@pytest.mark.parametrize("layers", [(), (nn.ReLU(),), (InvertibleBatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1))])
def test_other_layers_are_refused(layers):
    with pytest.raises(TypeError, match="invertible norm, leaky ReLU and convolution, in this order"):
        LayerwiseFunction(*layers)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_backward_holds_the_tensors_of_one_layer(kind):
    """Beside input and given gradient: value and gradient, and a sixteenth of what a convolution adds to them."""
    function, batch = function_of(kind, WIDTH), 16
    function.layerwise = True
    x, upstream = random_map(batch, WIDTH, 40, 40), random_map(batch, WIDTH, 40, 40, seed=1)
    size = x.numel() * x.element_size()
    with torch.no_grad(), MemoryLedger() as ledger:
        recompute_backward(function, x, upstream, ParameterGradients(function.parameters()), value_hook=lambda v: None)
    held = max(accumulate(change.difference for change in ledger.changes))
    assert 4 * size < held < 4.1 * size
