"""Statistics pooling against its formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svtoolkit.models.pooling import StatisticsPooling, StretchedStatistics

torch.set_num_threads(1)


def pooled(feature_map: torch.Tensor) -> np.ndarray:
    """Mean and deviation by their definition, (batch, 2 * channels * bins), float64."""
    values = feature_map.double().numpy()
    batch, channels, bins, frames = values.shape
    mean, deviation = np.zeros((batch, channels * bins)), np.zeros((batch, channels * bins))
    for channel in range(channels):
        for row in range(bins):
            series = values[:, channel, row]
            centre = series.sum(axis=1) / frames
            spread = ((series - centre[:, None]) ** 2).sum(axis=1) / max(frames - 1, 1)
            mean[:, channel * bins + row] = centre
            deviation[:, channel * bins + row] = np.sqrt(spread + 1e-7)
    return np.concatenate([mean, deviation], axis=1)


def random_map(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(shape, generator=generator) + 0.3).to(dtype)


@pytest.mark.parametrize("frames", [1, 2, 3, 25, 200])
def test_mean_and_deviation(frames):
    feature_map = random_map(2, 3, 5, frames)
    statistics = StatisticsPooling()(feature_map)
    assert statistics.shape == (2, 30)
    assert statistics.dtype == torch.float32
    np.testing.assert_allclose(statistics.numpy(), pooled(feature_map), rtol=1e-5, atol=1e-6)


def test_a_single_frame_is_its_own_mean_without_deviation():
    feature_map = random_map(2, 3, 5, 1)
    mean, deviation = StatisticsPooling()(feature_map).chunk(2, dim=1)
    assert torch.equal(mean, feature_map.flatten(1))
    torch.testing.assert_close(deviation, torch.full_like(deviation, 1e-7**0.5))


@pytest.mark.parametrize("frames", [1, 9])
def test_a_constant_map_has_a_finite_gradient(frames):
    feature_map = torch.full((2, 3, 5, frames), 0.7, requires_grad=True)
    StatisticsPooling()(feature_map).sum().backward()
    # the root's slope, 1 / (2 * sqrt(1e-7)), enlarges what rounding leaves of the variance
    torch.testing.assert_close(feature_map.grad, torch.full_like(feature_map, 1 / frames), rtol=0, atol=1e-3)


def test_the_gradient_agrees_with_finite_differences():
    feature_map = random_map(2, 2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(StatisticsPooling(), (feature_map,))


def test_float64_stays_float64():
    feature_map = random_map(2, 3, 5, 7, dtype=torch.float64)
    np.testing.assert_allclose(StatisticsPooling()(feature_map).numpy(), pooled(feature_map), rtol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 500.0])
def test_half_precision_maps_are_pooled_in_float32(dtype, scale):
    """A deviation above 256 has a variance beyond the range of float16."""
    feature_map = random_map(2, 3, 5, 60, scale=scale, dtype=dtype)
    statistics = StatisticsPooling()(feature_map)
    assert statistics.dtype == torch.float32
    np.testing.assert_allclose(statistics.numpy(), pooled(feature_map), rtol=1e-4, atol=1e-5)


def test_there_are_no_parameters():
    assert StatisticsPooling().state_dict() == {}


@pytest.mark.parametrize("cuts", [(), (1,), (7, 8, 60)])
def test_a_map_in_stretches_has_the_statistics_of_the_whole(cuts):
    feature_map = random_map(2, 3, 5, 200) + 1000.0  # a mean so far from zero that sums of squares would lose it
    statistics = StretchedStatistics()
    for stretch in torch.tensor_split(feature_map, cuts, dim=-1):
        statistics.include(stretch)
    np.testing.assert_allclose(statistics.pooled().numpy(), pooled(feature_map), rtol=1e-6)


def test_stretches_of_a_single_frame_have_the_deviation_of_variance_zero():
    statistics = StretchedStatistics()
    statistics.include(random_map(1, 2, 3, 1))
    np.testing.assert_allclose(statistics.pooled().numpy(), pooled(random_map(1, 2, 3, 1)), rtol=1e-6)
