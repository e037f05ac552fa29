"""Layers cut to what they make: nearest of their rank on what was seen, of the same mean, whatever their kind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from svtoolkit.compression.factors import split, truncated, with_ranks
from svtoolkit.compression.layers import Dense, apply_ranks
from svtoolkit.compression.outputs import check_outputs, cut_weights, outputs_of
from svtoolkit.errors import UserError

LAYERS: dict[str, tuple[Dense, tuple[int, ...]]] = {
    "linear": (nn.Linear(30, 12), (50, 30)),
    "linear over time": (nn.Linear(20, 12), (4, 30, 20)),
    "without a bias": (nn.Linear(30, 12, bias=False), (50, 30)),
    "over time": (nn.Conv1d(8, 12, 5, stride=2, padding=1), (6, 8, 40)),
    "maps": (nn.Conv2d(5, 12, 3, padding=1, bias=False), (3, 5, 9, 8)),
}


def seen_by(shape: tuple[int, ...]) -> torch.Tensor:
    """Correlated, and of a mean that is not 0."""
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.cumsum(-1) * 0.3 + 1


@pytest.fixture(params=list(LAYERS))
def layer(request) -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    module, shape = LAYERS[request.param]
    module.reset_parameters()
    return nn.Sequential(module.double()), seen_by(shape)


def as_rows(made: torch.Tensor, module: nn.Module) -> torch.Tensor:
    return (made if isinstance(module, nn.Linear) else made.movedim(1, -1)).reshape(-1, 12)


@pytest.mark.parametrize("rank", [1, 4, 11])
def test_nothing_of_that_rank_is_nearer(layer, rank):
    network, x = layer
    with torch.no_grad(), outputs_of({"0": network[0]}) as found:
        for part in x.split(2):  # sums do not depend on batches
            network(part)
        whole = network(x)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    outputs = found["0"]
    expected = as_rows(whole, network[0])
    assert outputs.count == 2 * len(expected)  # it was run again, as a whole

    def error_of(weights: dict[str, torch.Tensor]) -> tuple[float, torch.Tensor]:
        network.load_state_dict(weights)
        with torch.no_grad():
            rows = as_rows(network(x), network[0])
        network.load_state_dict(before)
        return float((rows - expected).square().sum()), (rows - expected).mean(0)

    cut = cut_weights(before, {"0": rank}, found=found)
    error, mean = error_of(cut)
    assert torch.linalg.matrix_rank(cut["0.weight"].flatten(1)) == rank
    # Eckart and Young: no vectors of that rank are nearer to these
    centred = expected - expected.mean(0) if network[0].bias is not None else expected
    values = torch.linalg.svdvals(centred)
    assert error == pytest.approx(float(values[rank:].square().sum()), rel=1e-6)
    assert error < error_of(truncated(before, {"0": rank}))[0]
    if network[0].bias is not None:
        torch.testing.assert_close(mean, torch.zeros(12, dtype=torch.float64), rtol=0, atol=1e-9)
    spectrum = outputs.spectrum
    assert spectrum.error(rank) == pytest.approx((error / float(values.square().sum())) ** 0.5, rel=1e-6)
    assert (spectrum.rows, spectrum.columns) == tuple(network[0].weight.flatten(1).shape)


def test_factors_of_it_are_it(layer):
    network, x = layer
    with torch.no_grad(), outputs_of({"0": network[0]}) as found:
        network(x)
    cut = cut_weights(network.state_dict(), {"0": 4}, found=found)
    product = with_ranks(cut, {"0": 4})
    apply_ranks(network, {"0": 4})
    network.load_state_dict(product)
    torch.testing.assert_close(network[0].weight, cut["0.weight"])
    u, v = split(cut["0.weight"], 4)
    torch.testing.assert_close(u.square().sum(), v.square().sum())


def test_hooks_are_gone_and_the_whole_is_the_whole(layer):
    network, x = layer
    with torch.no_grad(), outputs_of({"0": network[0]}) as found:
        network(x)
    count = found["0"].count
    network(x)
    assert found["0"].count == count
    whole = cut_weights(network.state_dict(), {"0": 12}, found=found)
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(whole[name], tensor)


def test_what_tells_nothing_is_refused():
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    with outputs_of({"0": network[0], "1": network[1]}) as found:
        network[0](torch.ones(2, 3))
    with pytest.raises(UserError, match="the layer 1 was not run on the recordings of calibration"):
        check_outputs(found)
    with outputs_of({"0": network[0]}) as found:
        network[0](torch.full((2, 3), torch.nan))
    with pytest.raises(UserError, match="the layer 0 made numbers that are not finite"):
        check_outputs(found)
