"""Networks with BatchNorm after the pooling, where a batch of one utterance has no statistics."""

from __future__ import annotations

import pytest
import torch
from foreign_networks import randomise
from network_material import narrow

from svtoolkit.models.blocks import VectorNorm

torch.set_num_threads(1)


def test_one_vector_is_normalised_by_the_running_statistics():
    norm = randomise(VectorNorm(5))
    x = torch.randn(1, 5)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    found = norm.train()(x)
    expected = (x - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight + norm.bias
    torch.testing.assert_close(found, expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())


def test_several_vectors_are_normalised_by_their_own():
    x = torch.randn(7, 5)
    norm, plain = VectorNorm(5), torch.nn.BatchNorm1d(5)
    assert torch.equal(norm(x), plain(x))
    assert torch.equal(norm.running_var, plain.running_var)
    assert torch.equal(norm.eval()(x), plain.eval()(x))


@pytest.mark.parametrize(
    "name", ["ecapa_tdnn_c512", "campplus", "xvector", "redimnet2_b5", "sb_ecapa_tdnn", "sb_resnet"]
)
def test_a_network_trains_on_one_utterance(name):
    network = narrow(name, num_bins=16, embedding_dim=8).train()
    network(torch.randn(1, 40, 16)).square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all()
        for parameter in network.parameters()
        if parameter.requires_grad
    )
