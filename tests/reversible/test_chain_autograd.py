"""Every way in which gradients are asked for: right, or refused with a sentence, and never silently wrong."""

from __future__ import annotations

import pytest
import torch
from reversible_material import (
    assert_recomputed,
    assert_same_gradients,
    chain_and_map,
    chain_of,
    distance,
    network_and_frames,
    random_map,
    stored_and_reversible,
    under,
    weighted_sum,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from svtoolkit.memory import apply_strategy
from svtoolkit.models.recomputed_blocks import ConvNormRelu

torch.set_num_threads(1)

WIDTH = 8


def test_gradients_accumulate_over_micro_batches():
    network, x = network_and_frames()
    stored, found = stored_and_reversible(network)
    for model in (stored, found):
        for batch in (x, x.flip(1), 2 * x):
            weighted_sum(model(batch)).backward()
    assert_same_gradients(found, stored)
    for (name, buffer), expected in zip(found.named_buffers(), stored.buffers(), strict=True):
        assert torch.equal(buffer, expected), name


def test_clipped_gradients_and_the_steps_they_make():
    network, x = network_and_frames()
    pair = stored_and_reversible(network)
    norms = []
    for model in pair:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            weighted_sum(model(x)).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
    assert min(norms) > 0.5
    assert norms[3:] == pytest.approx(norms[:3], rel=1e-7)
    for expected, parameter in zip(*(model.parameters() for model in pair), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-7, atol=1e-9)


FROZEN = {
    "stem and first stage": lambda name: name.startswith(("stem", "stages.0")),
    "all but the embedding": lambda name: not name.startswith("embedding"),
    "all but the first stage": lambda name: not name.startswith("stages.0"),
    "the embedding": lambda name: name.startswith("embedding"),
    "convolutions": lambda name: name.endswith("conv.weight"),
    "norms": lambda name: "norm" in name,
    "every residual function F": lambda name: ".f." in name,
    "the second half of a function": lambda name: ".f.1." in name,
}


@pytest.mark.parametrize("learns_input", [True, False], ids=["input learns", "input given"])
@pytest.mark.parametrize("is_frozen", FROZEN.values(), ids=FROZEN)
def test_frozen_parameters(is_frozen, learns_input):
    network, x = network_and_frames()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not is_frozen(name))
    found = assert_recomputed(network, x, learns_input=learns_input)
    for name, parameter in network.named_parameters():
        assert (found.gradients[name] is None) == (not parameter.requires_grad), name


def test_everything_frozen_but_the_input():
    network, x = network_and_frames()
    found = assert_recomputed(network.requires_grad_(False), x)
    assert [name for name, gradient in found.gradients.items() if gradient is not None] == ["input"]


def test_nothing_learns_and_nothing_is_recorded():
    network, x = network_and_frames()
    apply_strategy(network.requires_grad_(False), "reversible")
    assert network(x).grad_fn is None


def test_gradients_of_some_parameters_and_the_input():
    network, x = network_and_frames()
    x.requires_grad_()
    stored, found = stored_and_reversible(network)
    results = []
    for model in (stored, found):
        wanted = [x, model.stem[0].conv.weight, model.stages[2][1][1].g[0].norm.bias, model.embedding.weight]
        results.append(torch.autograd.grad(weighted_sum(model(x)), wanted))
    for first, second in zip(*results, strict=True):
        assert distance(second, first) < 1e-9
    assert all(parameter.grad is None for model in (stored, found) for parameter in model.parameters())


@pytest.mark.parametrize("wants_input", [True, False])
def test_only_the_input_or_only_the_parameters(wants_input):
    network, x = network_and_frames()
    x.requires_grad_()
    results = []
    for model in stored_and_reversible(network):
        wanted = [x] if wants_input else list(model.parameters())
        results.append(torch.autograd.grad(weighted_sum(model(x)), wanted))
    for first, second in zip(*results, strict=True):
        assert distance(second, first) < 1e-9


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_inside_a_checkpoint(reentrant):
    network, x = network_and_frames()
    gradients = []
    for model in stored_and_reversible(network):
        given = x.clone().requires_grad_()
        weighted_sum(checkpoint(model, given, use_reentrant=reentrant)).backward()
        gradients.append([given.grad, *(parameter.grad for parameter in model.parameters())])
    for first, second in zip(*gradients, strict=True):
        assert distance(second, first) < 1e-9


class Checkpointed(nn.Module):
    """A checkpoint inside a residual function."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layers, x, use_reentrant=False)


def test_a_checkpoint_inside_a_chain():
    chain = chain_of(2, WIDTH, Checkpointed).double()
    assert_recomputed(chain, random_map(2, WIDTH, 6, 8, dtype=torch.float64))


@pytest.mark.parametrize("after", [(), (ConvNormRelu(WIDTH, 4),)], ids=["sequence", "block"])
def test_the_upstream_gradient_is_left_alone(after):
    """It may be another's, too: here that of the other summand."""
    chain, x = chain_and_map(*after)
    value = chain(x)
    other, upstream = torch.zeros_like(value).requires_grad_(), torch.empty_like(value).normal_()
    kept = upstream.clone()
    (value + other).backward(upstream)
    assert torch.equal(upstream, kept)
    assert torch.equal(other.grad, kept)


def test_a_kept_graph_is_differentiated_again():
    network, x = network_and_frames()
    network = under("reversible", network)
    loss = weighted_sum(network(x))
    results = [torch.autograd.grad(loss, list(network.parameters()), retain_graph=True) for _ in range(3)]
    results.append(torch.autograd.grad(loss, list(network.parameters())))
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))


def test_first_gradients_with_create_graph_are_right():
    network, x = network_and_frames()
    results = [
        torch.autograd.grad(weighted_sum(model(x)), list(model.parameters()), create_graph=True)
        for model in stored_and_reversible(network)
    ]
    for first, second in zip(*results, strict=True):
        assert distance(second, first) < 1e-9


def test_hooks_on_gradients():
    """Of parameters and of the result: they see what those of stored activations see, and what they return counts."""
    chain, x = chain_and_map()
    seen: dict[str, list[Tensor]] = {"store": [], "reversible": []}
    for strategy in seen:
        model = under(strategy, chain)
        weight = model[0][0].f[0].conv.weight
        weight.register_hook(lambda gradient, seen=seen[strategy]: seen.append(gradient))
        weight.register_post_accumulate_grad_hook(lambda parameter, seen=seen[strategy]: seen.append(parameter.grad))
        value = model(x)
        value.register_hook(lambda gradient: 3 * gradient)
        weighted_sum(value).backward()
    assert [len(each) for each in seen.values()] == [2, 2]
    for first, second in zip(*seen.values(), strict=True):
        assert distance(second, first) < 1e-9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_network_leaves_the_chain_out():
    """Whole, forward too: what was compiled would round otherwise than backward, which nobody compiles."""
    network, x = network_and_frames()
    stored, found = stored_and_reversible(network)
    compiled: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]):
        compiled.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch._dynamo.reset()
    faster = torch.compile(found, backend=backend)
    for batch in (x, x.flip(1)):
        weighted_sum(stored(batch)).backward()
        weighted_sum(faster(batch)).backward()
    assert_same_gradients(found, stored)
    for (name, buffer), expected in zip(found.named_buffers(), stored.buffers(), strict=True):
        assert torch.equal(buffer, expected), name
    assert any("var_mean" in target for target in compiled)
    assert not any("conv" in target or "batch_norm" in target for target in compiled)


def test_a_compiled_network_with_stored_activations():
    network, x = network_and_frames()
    stored, plain = under("store", network), under("store", network)
    torch._dynamo.reset()
    faster = torch.compile(stored.stages[2], backend="eager")
    x = plain.stages[1](plain.stages[0](plain.stem(x.transpose(1, 2).unsqueeze(1)))).detach()
    for value in (plain.stages[2](x), faster(x)):
        weighted_sum(value).backward()
    assert_same_gradients(stored.stages[2], plain.stages[2])
