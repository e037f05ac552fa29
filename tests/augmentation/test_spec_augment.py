"""SpecAugment: how masks are drawn and what they do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.errors import UserError

POLICY = SpecAugment(probability=1.0, time_masks=2, time_width=7, freq_masks=1, freq_width=5)


@given(
    st.builds(
        SpecAugment,
        probability=st.floats(0, 1),
        time_masks=st.integers(0, 3),
        time_width=st.integers(0, 30),
        freq_masks=st.integers(0, 3),
        freq_width=st.integers(0, 30),
    ),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_masks_lie_within_the_crop_and_are_no_wider_than_allowed(policy, frames, bins, seed):
    masks = policy.draw(frames, bins, np.random.default_rng(seed))
    assert masks.shape == (policy.time_masks + policy.freq_masks, 2)
    assert masks.dtype == np.int64
    for row, (begin, end) in enumerate(masks):
        size, widest = (frames, policy.time_width) if row < policy.time_masks else (bins, policy.freq_width)
        assert 0 <= begin <= end <= size
        assert end - begin <= widest


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_share_of_crops_with_masks(probability):
    policy = dataclasses.replace(POLICY, probability=probability)
    rng = np.random.default_rng(0)
    masked = np.mean([policy.draw(100, 40, rng).any() for _ in range(4000)])
    # One crop in 6 * 8 * 8 draws width 0 three times: below the tolerance.
    assert masked == pytest.approx(probability, abs=0.03)


def test_widths_and_places_are_uniform():
    rng = np.random.default_rng(1)
    masks = np.stack([POLICY.draw(20, 10, rng) for _ in range(6000)])
    widths = masks[..., 1] - masks[..., 0]
    for row, widest in ((0, 7), (1, 7), (2, 5)):
        share = np.bincount(widths[:, row], minlength=widest + 1) / len(widths)
        np.testing.assert_allclose(share, 1 / (widest + 1), atol=0.02)
    begins = masks[widths[:, 0] == 4, 0, 0]
    np.testing.assert_allclose(np.bincount(begins, minlength=17) / len(begins), 1 / 17, atol=0.03)


def test_a_draw_depends_on_the_generator_alone():
    first, second = (POLICY.draw(50, 30, np.random.default_rng([5, 2, 9])) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, POLICY.draw(50, 30, np.random.default_rng([5, 3, 9])))


def masked_by_loop(features: np.ndarray, masks: np.ndarray, time_masks: int) -> np.ndarray:
    out = features.copy()
    for crop, rows in zip(out, masks, strict=True):
        for row, (begin, end) in enumerate(rows):
            for position in range(begin, end):
                if row < time_masks:
                    crop[position, :] = 0.0
                else:
                    crop[:, position] = 0.0
    return out


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_applying_is_what_a_plain_loop_does(time_masks, freq_masks, batch, seed):
    policy = SpecAugment(0.8, time_masks, 6, freq_masks, 4)
    rng = np.random.default_rng(seed)
    masks = np.stack([policy.draw(18, 11, rng) for _ in range(batch)])
    features = rng.normal(size=(batch, 18, 11)).astype(np.float32)
    applied = policy.apply(torch.from_numpy(features), torch.from_numpy(masks))
    np.testing.assert_array_equal(applied.numpy(), masked_by_loop(features, masks, time_masks))


def test_masked_values_are_zero_whatever_they_were():
    features = torch.full((1, 6, 4), torch.nan)
    policy = SpecAugment(1.0, 1, 6, 0, 0)
    applied = policy.apply(features, torch.tensor([[[2, 5]]]))
    assert torch.equal(applied.isnan().any(dim=2)[0], torch.tensor([True, True, False, False, False, True]))
    assert (applied[0, 2:5] == 0).all()
    assert features.isnan().all(), "the input is left as it was"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": 1.5}, r"augment\.spec_probability is 1\.5, expected a share from 0 to 1"),
        ({"probability": -0.1}, r"augment\.spec_probability is -0\.1, expected a share from 0 to 1"),
        ({"probability": float("nan")}, r"augment\.spec_probability is nan"),
        ({"time_masks": -1}, r"augment\.time_masks is -1, expected 0 or more"),
        ({"freq_width": -3}, r"augment\.freq_width is -3, expected 0 or more"),
    ],
)
def test_a_policy_out_of_range_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(POLICY, **change)
