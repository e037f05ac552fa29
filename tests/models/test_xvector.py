"""The x-vector network: what it needs of an utterance."""

from __future__ import annotations

import pytest
import torch
from network_material import narrow

from svtoolkit.errors import UserError


def test_one_frame_of_the_map_sees_fifteen():
    network = narrow("xvector", num_bins=6, embedding_dim=4).eval()
    assert network.feature_map(torch.zeros(2, 15, 6)).shape == (2, 24, 1)
    with torch.no_grad():
        assert network(torch.zeros(2, 15, 6)).isfinite().all()


def test_an_utterance_that_is_too_short():
    network = narrow("xvector", num_bins=6, embedding_dim=4)
    with pytest.raises(UserError, match=r"^an utterance has 14 frames, and model=xvector needs 15 or more: leave out"):
        network(torch.zeros(2, 14, 6))
