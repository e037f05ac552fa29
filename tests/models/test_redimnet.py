"""ReDimNet and ReDimNet2: sizes of the input that their strides do not divide."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
import torch.nn.functional as F
from foreign_networks import randomise
from network_material import narrow
from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.redimnet_blocks import Mixing, to_map, to_rows
from svtoolkit.models.redimnet_time import HEADS
from svtoolkit.models.registry import NETWORKS
from svtoolkit.reversible import SharedValues

torch.set_num_threads(1)


@pytest.mark.parametrize(("name", "bins", "padded"), [("redimnet_b0", 11, 12), ("redimnet2_b4", 13, 16)])
@torch.inference_mode()
def test_bins_of_zero_fill_up_what_the_strides_do_not_divide(name, bins, padded):
    torch.manual_seed(1)
    network = randomise(narrow(name, num_bins=bins, embedding_dim=8)).eval()
    whole = narrow(name, num_bins=padded, embedding_dim=8).eval()
    whole.load_state_dict(network.state_dict())
    frames = torch.randn(2, 40, bins)
    torch.testing.assert_close(network(frames), whole(F.pad(frames, (0, padded - bins))))


def test_the_published_sizes_are_not_filled_up():
    rows = {name: row for name, row in NETWORKS.rows.items() if name.startswith("redimnet") and "_b" in name}
    assert len(rows) == 14
    for name, row in rows.items():
        bins = 60 if name == "redimnet_b0" else 72
        assert bins % math.prod(stage[0] for stage in row.arguments["stages"]) == 0
        # a reduction that leaves no multiple of the attention heads would be rounded, which theirs refuses
        rounded = [stage[3] for stage in row.arguments["stages"] if stage[3]]
        assert all(bins * row.arguments["channels"] // reduction % HEADS == 0 for reduction in rounded), name


@torch.inference_mode()
def test_frames_that_fill_no_stride_are_left_out():
    network = randomise(narrow("redimnet2_b5", num_bins=8, embedding_dim=8)).eval()
    frames = torch.randn(2, 43, 8)
    assert torch.equal(network(frames), network(frames[:, :40]))
    with pytest.raises(UserError, match=r"^an utterance has 3 frames, and a ReDimNet2 needs 4 or more: leave out"):
        network(frames[:, :3])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("redimnet", {"stages": [[1, 2, 1]]}, "stages[0] is [1, 2, 1], expected a list: stride, blocks, expansion, re"),
        ("redimnet", {"stages": ["1212"]}, "stages[0] is '1212', expected a list"),
        ("redimnet", {"stages": [[0, 2, 1, 12]]}, "stages[0] has the stride 0, expected a whole number from 1 to 64"),
        ("redimnet", {"channels": 0}, "channels is 0 before strides of 8, expected 1 to 4096"),
        ("redimnet", {"kind": "convnet"}, "kind is 'convnet', expected one of convnext, convnext_relu, basic, excited"),
        ("redimnet", {"time_block": "gru"}, "time_block is 'gru', expected one of conv+att, conv, att, fc"),
        ("redimnet", {"group_width": -1}, "group_width is -1, which makes no groups of the 16 channels"),
        ("redimnet", {"out_channels": 0}, "out_channels is 0, expected a number above 0 or null"),
        ("redimnet", {"pooled_norm": True, "embedding_layers": 2}, "embedding_layers is 2, but with pooled_norm or"),
        ("redimnet2", {"skip_frames": -1}, "pad_frames is 0 and skip_frames -1, expected 0 or more"),
        ("redimnet2", {"stages": [[1, 1, 1, 8, 64]] * 2}, "stages shorten time by 4096, expected 64 or less"),
        ("redimnet2", {"stages": [[1, 1, 0.01, 8]]}, "an expansion of 0.01 leaves none of 24 channels"),
        ("redimnet2", {"stages": [[1, 1, 1, 8, 1, [[3]]]]}, "stages[0] has the kernels [[3]], expected pairs of whole"),
    ],
)
def test_sizes_that_make_no_network(name, options, message):
    with pytest.raises(UserError) as caught, torch.device("meta"):
        build_model(name, num_bins=72, **options)
    assert str(caught.value).startswith(f"network {name}: {message}")


def shared(maps: Iterable[Tensor]) -> SharedValues:
    values = SharedValues(None)
    for each in maps:
        values.add(each, nn.Identity())
    return values


def test_a_mixture_is_weighted_by_a_softmax_over_the_maps():
    mixing, maps = Mixing(3, 6), torch.randn(3, 2, 6, 5)
    torch.nn.init.normal_(mixing.w)
    expected = torch.einsum("nr,nbrt->brt", torch.softmax(mixing.w[0, ..., 0], dim=0), maps)
    torch.testing.assert_close(mixing(shared(maps))[0], expected)
    one = torch.randn(2, 6, 5)
    assert Mixing(1, 6)(shared([one]))[0] is one
    assert not Mixing(1, 6).w.requires_grad


def test_rows_are_bins_of_channels():
    x = torch.randn(2, 3, 4, 5)
    rows = to_rows(x)
    assert torch.equal(rows[1, 2 * 3 + 1], x[1, 1, 2])
    assert torch.equal(to_map(rows, 3), x)
