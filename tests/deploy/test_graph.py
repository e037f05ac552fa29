"""Exported graphs: every family and every front end, for any batch and length."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from exported_material import cosine_of
from network_material import NARROW, narrow
from onnx_material import nemo_graph, small_graph
from torch import nn

from svtoolkit.checkpoints.exported import EMBEDDING, FEATURES, WAVEFORM
from svtoolkit.deploy.graph import export_graph
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import FRONT_ENDS, features_config, front_end_of
from svtoolkit.runtime.engines import OnnxRuntime

torch.set_num_threads(1)

BINS, DIM, RATE = 72, 8, 16000
SMALL = {
    "resnet10": {"base_width": 4},
    "resnet50": {"base_width": 2},
    "revnet_tiny": {},
    "revnext_tiny": {},
    "df_resnet56": {},
}
"""Networks of the registry beside ``NARROW``."""
SOUND = np.random.default_rng(5).standard_normal((2, 3 * RATE)).astype(np.float32) * 0.05


def front_end(**settings: object) -> FrontEnd:
    return front_end_of(features_config({"num_bins": BINS, **settings}))


def settled(network: nn.Module) -> nn.Module:
    """With statistics in its batch norms, so that activations are of a usual size."""
    torch.manual_seed(1)
    network.train()
    with torch.no_grad():
        network(torch.randn(3, 61, BINS))
    return network.eval()


def assert_equal(content: bytes, network: nn.Module, features: FrontEnd, *, waveform: bool) -> None:
    """Of one and of two recordings, of an even and of an odd number of frames."""
    engine = OnnxRuntime(content, 1)
    for batch, samples in ((1, 20000), (2, 33333), (1, 16160)):
        sound = torch.from_numpy(SOUND[:batch, :samples].copy())
        given = sound if waveform else features.frames(sound)
        found = engine.run(WAVEFORM if waveform else FEATURES, given.numpy())
        with torch.no_grad():
            expected = network(features(sound)).numpy()
        assert found.shape == expected.shape
        for row, other in zip(found, expected, strict=True):
            assert cosine_of(row, other) > 0.99999
            np.testing.assert_allclose(row, other, atol=2e-3 * np.abs(other).max())


@pytest.mark.parametrize("name", [*NARROW, *SMALL])
def test_every_family(name):
    torch.manual_seed(0)
    if name in NARROW:
        network = narrow(name, num_bins=BINS, embedding_dim=DIM)
    else:
        network = build_model(name, num_bins=BINS, embedding_dim=DIM, **SMALL[name])
    settled(network)
    features = front_end()
    assert_equal(export_graph(network, features, waveform=False), network, features, waveform=False)


@pytest.mark.parametrize("name", sorted(set(FRONT_ENDS.rows) - {"torchaudio", "waveform"}))
def test_every_front_end_inside(name):
    features = front_end_of(features_config({"backend": name}))
    torch.manual_seed(0)
    network = build_model("xvector", num_bins=features.num_bins, embedding_dim=DIM)
    network.eval()
    assert_equal(export_graph(network, features, waveform=True), network, features, waveform=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"backend": "redim_pt", "norm_signal": True, "pad_right": 100},
        {"backend": "torch", "window": "rectangular", "preemphasis": 0.0, "remove_mean": False},
        {"backend": "torch", "sample_rate": 8000, "num_bins": 40},
    ],
    ids=str,
)
def test_settings_of_front_ends_inside(settings):
    features = front_end_of(features_config(settings))
    network = build_model("xvector", num_bins=features.num_bins, embedding_dim=DIM).eval()
    assert_equal(export_graph(network, features, waveform=True), network, features, waveform=True)


def test_the_waveform_itself():
    class Mean(nn.Module):
        def forward(self, frames):
            return torch.cat([frames.mean(1), frames.square().mean(1), frames.abs().mean(1)], dim=1)

    features = front_end_of(features_config({"backend": "waveform", "norm_signal": True}))
    network = Mean().eval()
    assert_equal(export_graph(network, features, waveform=True), network, features, waveform=True)


def test_batch_norms_are_folded_into_convolutions():
    network = settled(build_model("resnet10", num_bins=BINS, embedding_dim=DIM, base_width=4))
    graph = onnx.load_from_string(export_graph(network, front_end(), waveform=False)).graph
    kinds = {node.op_type for node in graph.node}
    assert "Conv" in kinds
    assert "BatchNormalization" not in kinds
    assert [graph.input[0].name, graph.output[0].name] == ["feats", "embs"]


@pytest.mark.parametrize(("name", "convolutions"), [("repvgg_b1g2", 7), ("repvgg_tiny_rsbb_a0", 14)])
def test_parallel_convolutions_are_one_where_that_is_less(name, convolutions):
    network = settled(narrow(name, num_bins=BINS, embedding_dim=DIM))
    graph = onnx.load_from_string(export_graph(network, front_end(), waveform=False)).graph
    assert [node.op_type for node in graph.node].count("Conv") == convolutions


def onnx_network(graph: onnx.ModelProto, **options: object) -> nn.Module:
    content = graph.SerializeToString()
    network = build_model("onnx", num_bins=80, embedding_dim=4, graph_bytes=len(content), **options)
    network.load_state_dict({"graph": torch.frombuffer(bytearray(content), dtype=torch.uint8)})
    return network.eval()


@pytest.mark.parametrize("waveform", [False, True])
@pytest.mark.parametrize("backend", ["torch", "kaldi_3d"])
def test_a_released_graph_gets_what_it_lacks(waveform, backend):
    network = onnx_network(small_graph(names=("x", "embedding")), output="embedding")
    features = front_end_of(features_config({"backend": backend}))
    # The mean of features without their mean is zero: a graph that forgot it would not be.
    features.remove_mean = False
    content = export_graph(network, features, waveform=waveform)
    assert_equal(content, network, features, waveform=waveform)
    assert onnx.load_from_string(content).graph.output[0].name == EMBEDDING
    features.remove_mean = True
    without_mean = OnnxRuntime(export_graph(network, features, waveform=waveform), 1)
    given = torch.from_numpy(SOUND)
    found = without_mean.run(*(("waveform", SOUND) if waveform else ("feats", features.frames(given).numpy())))
    assert np.abs(found).max() < 1e-3


@pytest.mark.parametrize(
    ("graph", "options", "reason"),
    [
        (small_graph((1, 200, 80), batch=1), {"output": "embs"}, "fixes the batch or the length"),
        (nemo_graph(), {"output": "embs", "bins_first": True}, "asks for the number of frames"),
    ],
)
def test_a_released_graph_of_fixed_size_is_refused(graph, options, reason):
    with pytest.raises(UserError, match=reason):
        export_graph(onnx_network(graph, **options), front_end(num_bins=80), waveform=False)


def test_a_network_of_stretches_is_refused():
    network = build_model("ge2e_lstm", num_bins=40, embedding_dim=DIM).eval()
    with pytest.raises(UserError, match="a GE2ENetwork embeds overlapping stretches of a recording and averages them"):
        export_graph(network, front_end_of(features_config({"backend": "res40"})), waveform=True)


def test_an_operation_that_onnx_does_not_have_is_named():
    class Transform(nn.Module):
        def forward(self, frames):
            return torch.fft.rfft(frames.mean(1)).abs()

    with pytest.raises(UserError, match=r"the network has no form as an ONNX graph: .*fft_rfft"):
        export_graph(Transform().eval(), front_end(), waveform=False)
