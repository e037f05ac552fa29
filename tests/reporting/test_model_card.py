"""The card of a model, where its front end is none of frames."""

from __future__ import annotations

import pytest

from svtoolkit.checkpoints.hub import Address
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.reporting.model_card import write_card


@pytest.mark.parametrize(
    ("features", "says"),
    [
        (
            WaveformConfig(),
            "the waveform itself, for the x-vector heads of transformers; every sample, of 325 ms or more",
        ),
        (FeaturesConfig(), "log-mel filter bank, as Kaldi's; 80 bins, 25 ms every 10 ms"),
    ],
)
def test_the_front_end_is_described(features, says):
    model = {"name": "resnet10", "num_bins": features.num_bins, "embedding_dim": 8}
    card = write_card(Address("me/model"), ModelDescription(model, features, {}), 5)
    assert f"| front end | {says} |" in card
