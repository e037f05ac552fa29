"""What OpenVINO is told to compute in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exported_material import cosine_of

from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.precision import store_in_16_bits
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.runtime import engines
from svtoolkit.runtime.engines import OpenVino
from svtoolkit.runtime.processor import FLAGS, processor_flags

pytest.importorskip("openvino")
torch.set_num_threads(1)
FRONT_END = front_end_of(features_config({"num_bins": 24}))
FRAMES = np.random.default_rng(0).standard_normal((1, 60, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    built = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=8).train()
    with torch.no_grad():
        built(torch.randn(4, 80, 24))
    return built.eval()


class Recording:
    """OpenVINO's core, and the arithmetic that it was asked for."""

    def __init__(self) -> None:
        self.core, self.asked = engines._openvino_core(), []

    def read_model(self, content):
        return self.core.read_model(content)

    def compile_model(self, graph, device, settings):
        self.asked.append(settings["INFERENCE_PRECISION_HINT"])
        return self.core.compile_model(graph, device, settings)


@pytest.mark.parametrize(
    ("flags", "waveform", "precision", "bfloat16", "expected"),
    [
        (["avx512_bf16"], False, "bf16", None, "f32"),
        (["avx512_bf16", "amx_bf16"], False, "bf16", None, "bf16"),
        (["amx_bf16"], False, "fp32", None, "f32"),
        (["amx_bf16"], False, "fp16", None, "f32"),
        (["amx_bf16"], True, "bf16", None, "f32"),
        (["amx_bf16"], False, "bf16", False, "f32"),
        ([], False, "fp32", True, "bf16"),
    ],
)
def test_bfloat16_is_computed_with_where_it_is_stored_and_fast(
    network, monkeypatch, flags, waveform, precision, bfloat16, expected
):
    content = export_graph(network, FRONT_END, waveform=waveform)
    core = Recording()
    monkeypatch.setattr(engines, "_openvino_core", lambda: core)
    monkeypatch.setattr(engines, "processor_flags", lambda: flags)
    OpenVino(content if precision == "fp32" else store_in_16_bits(content, precision), 1, bfloat16=bfloat16)
    assert core.asked == [expected]


def test_bfloat16_comes_near(network):
    content = export_graph(network, FRONT_END, waveform=False)
    whole = OpenVino(content, 1).run("feats", FRAMES)[0]
    assert (
        cosine_of(OpenVino(store_in_16_bits(content, "bf16"), 1, bfloat16=True).run("feats", FRAMES)[0], whole) > 0.999
    )


def test_runs_do_not_write_over_each_other(network):
    engine = OpenVino(export_graph(network, FRONT_END, waveform=False), 1)
    first = engine.run("feats", FRAMES)
    kept = first.copy()
    engine.run("feats", -FRAMES)
    np.testing.assert_array_equal(first, kept)


def test_flags_are_those_of_the_processor():
    assert set(processor_flags()) <= set(FLAGS)
