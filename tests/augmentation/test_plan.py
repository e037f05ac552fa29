"""Plans and policies: plain data, and what they refuse."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.augmentation import AugmentationPolicy, Plan, Slice
from svtoolkit.augmentation.plan import CLEAN
from svtoolkit.errors import UserError

slices = st.builds(Slice, st.integers(0, 9), st.floats(0, 100))
noise = st.tuples(st.sampled_from(["noise", "music", "babble"]), st.lists(slices, min_size=1, max_size=7).map(tuple))


@given(
    st.none() | st.integers(0, 60_000),
    st.just((None, ())) | noise,
    st.floats(-20, 40),
    st.floats(-20, 20),
    st.sampled_from([None, "mu", "a"]),
)
def test_a_plan_is_plain_data_and_back(response, noise, snr_db, gain_db, telephone):
    plan = Plan(response, *noise, snr_db, gain_db, telephone)
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    nothing = response is None and noise[0] is None and gain_db == 0 and telephone is None
    assert plan.is_clean == nothing


def test_nothing_is_clean():
    assert CLEAN.is_clean
    assert Plan.from_dict(CLEAN.to_dict()) == CLEAN


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"category": "speech", "slices": (Slice(0, 0.0),)},
            "category is 'speech', expected one of noise, music, babble",
        ),
        ({"telephone": "gsm"}, "telephone is 'gsm', expected one of mu, a or None"),
        ({"category": "noise"}, "category is 'noise' with 0 slices"),
        ({"slices": (Slice(0, 0.0),)}, "category is None with 1 slices"),
    ],
)
def test_a_plan_of_what_there_is_not_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Plan(**fields)


def test_the_ranges_are_those_of_the_field():
    policy = AugmentationPolicy()
    assert policy.probability == 0.6
    assert (policy.noise_snr, policy.music_snr, policy.babble_snr) == ((0, 15), (5, 15), (10, 30))
    assert policy.babble_talkers == (3, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": 1.2}, r"augment\.probability is 1\.2, expected a share from 0 to 1"),
        ({"probability": math.nan}, r"augment\.probability is nan"),
        ({"telephone_probability": -0.5}, r"augment\.telephone_probability is -0\.5"),
        ({"noise_snr": [15, 0]}, r"augment\.noise_snr is \[15, 0\], expected a lower and an upper limit in dB"),
        ({"music_snr": [5]}, r"augment\.music_snr is \[5\]"),
        ({"babble_snr": [0, math.inf]}, r"augment\.babble_snr is \[0, inf\], .*from -100 to 100"),
        ({"gain": [math.nan, 0]}, r"augment\.gain is \[nan, 0\]"),
        ({"babble_talkers": [7, 3]}, r"augment\.babble_talkers is \[7, 3\], expected fewest and most talkers"),
        ({"babble_talkers": [0, 3]}, r"augment\.babble_talkers is \[0, 3\]"),
        ({"babble_talkers": [1.5, 3]}, r"augment\.babble_talkers is \[1\.5, 3\]"),
        ({"both_weight": -1}, r"augment\.both_weight is -1, expected a weight of 0 or more"),
        ({"music_weight": math.inf}, r"augment\.music_weight is inf"),
        (
            {"only_noise_weight": 0, "only_reverberation_weight": 0, "both_weight": 0},
            r"augment\.only_noise_weight, augment\.only_reverberation_weight, augment\.both_weight are all 0",
        ),
        (
            {"noise_weight": 0, "music_weight": 0, "babble_weight": 0},
            r"are all 0, expected one above 0; augment\.probability=0 changes no crop",
        ),
    ],
)
def test_a_policy_out_of_range_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(AugmentationPolicy(), **change)
