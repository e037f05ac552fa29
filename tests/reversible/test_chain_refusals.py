"""What cannot be right is refused with a sentence: never a gradient that is silently wrong."""

from __future__ import annotations

import pytest
import torch
from reversible_material import chain_and_map, one_step, random_map, sequence_of, weighted_sum
from torch import nn

from svtoolkit.models.recomputed_blocks import ConvNormRelu
from svtoolkit.reversible import Chain, by_block

torch.set_num_threads(1)

WIDTH = 8
FREED = (
    "a recomputed chain was to be differentiated a second time after its cuts were freed; "
    "ask for retain_graph=True the first time"
)
MODIFIED = (
    "the result of a recomputed chain was modified in place before its gradient was computed; modify a clone of it"
)
TWICE = "the gradient of a recomputed chain cannot be differentiated again; second derivatives need stored activations"


@pytest.mark.parametrize("keeps_once", [False, True])
def test_a_freed_graph_is_not(keeps_once):
    chain, x = chain_and_map()
    value = chain(x)
    value.backward(torch.ones_like(value), retain_graph=keeps_once)
    if keeps_once:
        value.backward(torch.ones_like(value))
    with pytest.raises(RuntimeError) as caught:
        value.backward(torch.ones_like(value))
    assert str(caught.value) == FREED


# what comes after the sequence: who refuses
ENDINGS = {
    "sequence": ((), "the result of a recomputed chain was modified in place before its gradient"),
    "identity": ((nn.Identity(),), "the result of a recomputed chain was modified in place before its gradient"),
    "view": ((nn.Flatten(),), "is a view and its base or another view of its base has been modified inplace"),
}


@pytest.mark.parametrize(("after", "sentence"), ENDINGS.values(), ids=ENDINGS)
def test_a_result_modified_in_place_is_refused(after, sentence):
    """Whether the result is that of a sequence or what an ordinary module hands through."""
    chain, x = chain_and_map(*after)
    value = chain(x)
    with torch.no_grad():
        value.mul_(2)
    with pytest.raises(RuntimeError, match=sentence):
        value.sum().backward()


def test_a_result_modified_in_place_where_autograd_sees_it_is_refused():
    chain, x = chain_and_map()
    value = chain(x).relu_()
    with pytest.raises(RuntimeError) as caught:
        value.sum().backward()
    assert str(caught.value) == MODIFIED


def test_a_clone_of_the_result_may_be_modified():
    chain, x = chain_and_map()
    (expected,) = torch.autograd.grad(chain(x).relu().sum(), x)
    (found,) = torch.autograd.grad(chain(x).clone().relu_().sum(), x)
    assert torch.equal(found, expected)


def test_an_input_modified_in_place_is_refused_by_autograd():
    chain = Chain(ConvNormRelu(1, WIDTH), sequence_of(1, WIDTH))
    chain.planner = by_block
    x = random_map(2, 1, 6, 8)
    value = chain(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_an_input_that_is_not_needed_may_be_modified():
    """A sequence recovers it from its result."""
    chain, x = chain_and_map()
    expected = one_step(chain, x.detach(), learns_input=False)
    given = x.detach().clone()
    value = chain(given)
    given.zero_()
    weighted_sum(value).backward()
    assert all(torch.equal(p.grad, expected.gradients[name]) for name, p in chain.named_parameters())


def test_weights_that_change_before_backward_are_refused():
    chain, x = chain_and_map()
    optimizer = torch.optim.SGD(chain.parameters(), lr=0.1)
    weighted_sum(chain(x)).backward()
    value = chain(x)
    optimizer.step()
    with pytest.raises(RuntimeError, match="a weight of a recomputed chain was modified or replaced"):
        value.sum().backward()


def test_weights_that_are_lent_for_one_forward_pass_are_refused():
    chain, x = chain_and_map()
    lent = {name: parameter.detach().clone().requires_grad_() for name, parameter in chain.named_parameters()}
    value = torch.func.functional_call(chain, lent, (x,))
    with pytest.raises(RuntimeError, match="a weight of a recomputed chain was modified or replaced"):
        value.sum().backward()


def test_a_mode_that_changes_before_backward_is_refused():
    chain, x = chain_and_map()
    value = chain(x)
    chain.eval()
    with pytest.raises(RuntimeError, match="went from training to evaluation mode, or back"):
        value.sum().backward()


@pytest.mark.parametrize("curved", [False, True], ids=["linear loss", "curved loss"])
def test_a_gradient_penalty_is_refused(curved):
    """With a linear loss the upstream gradient depends on nothing, and the penalty could pass for a constant."""
    chain, x = chain_and_map()
    value = chain(x)
    (gradient,) = torch.autograd.grad(value.square().sum() if curved else value.sum(), x, create_graph=True)
    assert gradient.requires_grad
    with pytest.raises(RuntimeError) as caught:
        (value.sum() + gradient.square().sum()).backward()
    assert str(caught.value) == TWICE


def test_second_derivatives_with_stored_activations():
    chain, x = chain_and_map()
    chain.planner = None
    (gradient,) = torch.autograd.grad(chain(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    assert x.grad.any()
