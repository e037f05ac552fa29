"""Padded utterances: the embedding of each is that which it has alone, of every network that says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from foreign_networks import randomise
from network_material import BUILDERS, NARROW, narrow

from svtoolkit.models.padded import UnknownLengthError, embed_padded, takes_padding
from svtoolkit.models.redimnet2 import ReDimNet2
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)

BINS = 24
FEW = {
    "df_resnet56": {"blocks": (1, 2, 2, 1)},
    "df_revnet66": {"blocks": (1, 1, 2, 1)},
    "ge2e_lstm": {"hidden": 8},
    "resnet10": {"base_width": 4},
    "reversed_resnet34": {"base_width": 4, "blocks": (1, 1, 4, 1)},
    "revnet_tiny": {"channels": (8, 8, 12, 16)},
}
NARROWED = {NETWORKS[name].target for name in NARROW}
EVERY = sorted({*NARROW, *(name for target, name in BUILDERS.items() if target not in NARROWED)})
"""Every builder of the registry, and what else its rows can ask of it."""


def network_of(name):
    """Tiny, in eval mode, with statistics of a trained network."""
    torch.manual_seed(1)
    if name in NARROW:
        return randomise(narrow(name, num_bins=BINS, embedding_dim=16)).eval()
    arguments = NETWORKS[name].arguments | FEW.get(name, {})
    return randomise(NETWORKS.load(name)(num_bins=BINS, embedding_dim=16, **arguments)).eval()


def noise(lengths, dtype=torch.float32):
    """That grows louder, of so many frames each."""
    generator = torch.Generator().manual_seed(2)
    draw = [torch.randn(frames, BINS, generator=generator, dtype=dtype) for frames in lengths]
    return [each * torch.linspace(0.1, 3, len(each), dtype=dtype).unsqueeze(1) for each in draw]


@torch.inference_mode()
def difference(network, utterances):
    """From the embeddings of each alone, of the largest value."""
    alone = torch.cat([network(each.unsqueeze(0)) for each in utterances])
    return float((embed_padded(network, utterances) - alone).abs().max() / alone.abs().max())


@pytest.mark.parametrize("name", EVERY)
def test_a_network_is_exact_or_says_that_it_takes_no_padding(name):
    network = network_of(name)
    if network.maskable:
        assert difference(network.double(), noise((131, 130, 117, 67), torch.float64)) < 1e-9
    else:
        assert not takes_padding(network, BINS)
        network.maskable = True
        assert not takes_padding(network, BINS), "what it says of itself is no longer so"


@pytest.mark.parametrize("name", ["resnet10", "revnet_tiny", "campplus", "sb_ecapa_tdnn", "redimnet2_b4"])
def test_in_float32_rounding_is_all(name):
    assert difference(network_of(name), noise((240, 239, 229, 228))) < 1e-5


def test_time_is_told_from_bins_of_the_same_number():
    assert difference(network_of("simam_resnet34"), noise((BINS, BINS - 1, BINS - 7))) < 1e-5
    assert difference(network_of("redimnet_b0"), noise((BINS, BINS - 1, BINS - 7))) < 1e-5


def test_frames_behind_and_before_the_utterance():
    torch.manual_seed(1)
    options = {"stages": NARROW["redimnet2_b4"]["stages"], "channels": 4, "pad_frames": 5}
    network = randomise(ReDimNet2(num_bins=BINS, embedding_dim=8, **options)).eval().double()
    assert difference(network, noise((171, 150, 149, 130), torch.float64)) < 1e-9


class Middle(torch.nn.Module):
    """Looks at all frames in a way that nothing is known of."""

    def forward(self, frames):
        return frames.median(1).values


class Refuses(torch.nn.Module):
    def forward(self, frames):
        raise RuntimeError("one utterance at a time")


class TwoLengths(torch.nn.Module):
    """Two maps of as many frames, of which one has kept a frame that the other has not."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.ones(1, BINS, 2))

    def forward(self, frames):
        rows = frames.transpose(1, 2)
        maps = F.conv1d(rows, self.weights, stride=2), F.conv1d(rows, self.weights[..., :1], stride=2)
        return torch.cat([each.mean(-1) for each in maps], 1)


@pytest.mark.parametrize("name", ["ecapa_tdnn_c512", "redimnet2_b5"])
def test_a_trial_finds_those_that_do(name):
    assert takes_padding(network_of(name), BINS)


@pytest.mark.parametrize("network", [Middle(), Refuses(), TwoLengths()])
def test_a_trial_finds_those_that_say_nothing(network):
    assert not takes_padding(network.eval(), BINS)


def test_no_map_is_taken_for_another():
    with pytest.raises(UnknownLengthError, match=r"maps of 8 frames end at \[8, 6\] and at \[8, 7\]"):
        embed_padded(TwoLengths(), noise((16, 13)))


@pytest.mark.parametrize("name", ["resnet10", "revnet_tiny", "eres2netv2", "redimnet2_b5"])
def test_batches_go_through_beside_each_other(name):
    """Several threads share a network, and find to the bit what one does."""
    network = network_of(name)
    batches = [noise((80 + step, 71, 69)) for step in range(4)]

    @torch.inference_mode()
    def embed(batch):
        torch.set_num_threads(1)
        return embed_padded(network, batch)

    alone = [embed(batch) for batch in batches]
    with ThreadPoolExecutor(2) as pool:
        for found, expected in zip(pool.map(embed, batches), alone, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
