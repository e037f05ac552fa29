"""Signal-to-noise ratios of what inversion gives back: the formulas, and what networks and chains show."""

from __future__ import annotations

import math

import pytest
import torch
from reversible_material import random_map, tiny_network
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.reversibility import (
    check_leaky_relu,
    check_norm,
    measure_chains,
    measure_network,
    norm_alpha,
    snr_of,
)
from svtoolkit.reversible import InvertibleBatchNorm2d

torch.set_num_threads(1)


def ratios(rows, kind: str) -> list[float | None]:
    return [row.snr for row in rows if row.kind == kind]


def test_the_ratio_is_of_energies():
    x = torch.tensor([3.0, 4.0])
    assert snr_of(x + torch.tensor([0.3, 0.4]), x) == pytest.approx(20.0, abs=1e-5)
    assert snr_of(x, x) is None
    assert snr_of(torch.full((2,), math.nan), x) == -math.inf


@pytest.mark.parametrize("seed", [1, 2])
def test_a_norm_loses_what_the_formula_says(seed):
    """Of gains 1 and rho: 4 / ((1 + rho^2) (1 + 1 / rho^2)), recomputed here."""
    for row in check_norm(seed=seed):
        rho = row.parameter
        assert row.expected == pytest.approx(4 / ((1 + rho**2) * (1 + rho**-2)), rel=0.05)
        assert row.measured == pytest.approx(row.expected, rel=0.05)


@torch.no_grad()
def test_any_norm_loses_what_the_formula_says():
    """With biases, means and deviations of their own in every channel."""
    torch.manual_seed(0)
    layer = InvertibleBatchNorm2d(5).double()
    layer.weight.copy_(torch.tensor([0.1, -0.6, 1.3, 2.0, 0.4]))
    layer.bias.copy_(torch.tensor([0.5, 0.0, -1.0, 2.0, 0.2]))
    scale, shift = torch.tensor([1.0, 0.2, 3.0, 0.7, 2.0]), torch.tensor([0.0, 1.0, -2.0, 0.3, 5.0])
    x = torch.randn(16, 5, 32, 32, dtype=torch.float64) * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
    y, statistics = layer.evaluate(x)
    noisy = y + 1e-5 * torch.randn_like(y)
    loss = snr_of(layer.inverse_(noisy.clone(), statistics), x) - snr_of(noisy, y)
    expected = norm_alpha(layer.gain(), layer.bias, statistics.mean, statistics.deviation)
    assert loss == pytest.approx(10 * math.log10(expected), abs=0.1)


@pytest.mark.parametrize("seed", [1, 2])
def test_leaky_relu_loses_what_the_formula_says(seed):
    for row in check_leaky_relu(seed=seed):
        assert row.expected == pytest.approx(4 / ((1 + row.parameter**2) * (1 + row.parameter**-2)))
        assert row.measured == pytest.approx(row.expected, rel=0.05)


def test_layers_alone_lose_with_depth_and_slope_and_couplings_do_not():
    found = {(row.design, row.units, row.slope): row.snr for row in measure_chains([4, 16], [0.1, 0.5], 0.1)}
    assert found["layerwise", 16, 0.1] < found["layerwise", 16, 0.5] < found["layerwise", 4, 0.5]
    assert found["layerwise", 4, 0.1] - found["layerwise", 16, 0.1] > 60
    assert min(found["hybrid", 16, slope] for slope in (0.1, 0.5)) > 80


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_a_revnet_is_found_again_on_the_grid(precision):
    network, frames = tiny_network(), random_map(2, 20, 16)
    plain = measure_network(network, frames, precision, exact=False)
    exact = measure_network(network, frames, precision, exact=True)
    assert [row.kind for row in plain] == ["streams"] * 5  # of type II: a coupling a block
    assert set(ratios(exact, "streams")) == {None}
    least, most = {"fp64": (250, 400), "fp32": (80, 180)}[precision]
    assert least < min(ratio for ratio in ratios(plain, "streams") if ratio is not None) < most
    assert next(network.parameters()).dtype == torch.float32


def test_inside_a_revnext_noise_stays_in_its_function():
    """With streams on the grid every function begins with the noise of its own rounding, whatever the depth."""
    torch.manual_seed(2)
    network = NETWORKS.load("revnext57")(
        num_bins=15, embedding_dim=8, width=8, blocks=(2, 1, 1, 1), slope=0.1, norm_floor=0.1
    )
    found = measure_network(network, random_map(2, 21, 15), "fp32", exact=True)
    inside = [row for row in found if row.kind == "inside"]
    assert set(ratios(found, "streams")) == {None}
    assert len(inside) == 5 * 2 * 6
    assert min(row.snr for row in inside if row.snr is not None) > 80
    assert {row.couplings for row in found if row.kind == "streams"} == set(range(1, 8))


def test_an_ordinary_network_is_refused():
    with pytest.raises(UserError, match="of reversible networks, and this is none; choose model=revnext57"):
        measure_network(nn.Linear(2, 2), torch.zeros(1, 4, 2), "fp32", exact=False)
