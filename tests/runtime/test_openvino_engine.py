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
from svtoolkit.runtime import openvino_engine
from svtoolkit.runtime.openvino_engine import OpenVino, bfloat16_is_faster
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
        self.core, self.asked = openvino_engine._openvino_core(), []

    def read_model(self, content):
        return self.core.read_model(content)

    def compile_model(self, graph, device, settings):
        self.asked.append(settings["INFERENCE_PRECISION_HINT"])
        return self.core.compile_model(graph, device, settings)


@pytest.mark.parametrize(
    ("faster", "waveform", "precision", "bfloat16", "expected"),
    [
        (False, False, "bf16", None, "f32"),
        (True, False, "bf16", None, "bf16"),
        (True, False, "fp32", None, "f32"),
        (True, False, "fp16", None, "f32"),
        (True, True, "bf16", None, "f32"),
        (True, False, "bf16", False, "f32"),
        (False, False, "fp32", True, "bf16"),
    ],
)
def test_bfloat16_is_computed_with_where_it_is_stored_and_fast(
    network, monkeypatch, faster, waveform, precision, bfloat16, expected
):
    content = export_graph(network, FRONT_END, waveform=waveform)
    core = Recording()
    monkeypatch.setattr(openvino_engine, "_openvino_core", lambda: core)
    monkeypatch.setattr(openvino_engine, "bfloat16_is_faster", lambda: faster)
    OpenVino(content if precision == "fp32" else store_in_16_bits(content, precision), 1, bfloat16=bfloat16)
    assert core.asked == [expected]


@pytest.mark.parametrize(
    ("flags", "milliseconds", "expected"),
    [
        (["avx2", "avx512f"], {}, False),
        (["amx_bf16", "avx512_bf16"], {}, True),
        (["avx512_bf16"], {"f32": 2, "bf16": 1}, True),
        (["avx512_bf16"], {"f32": 1, "bf16": 2}, False),
        (["avx512_bf16"], {"f32": 1, "bf16": 1}, False),
    ],
)
def test_vectors_of_bfloat16_are_timed(monkeypatch, flags, milliseconds, expected):
    """Nothing is where there are none, or where there are tiles: an empty dict would be an error."""
    now = [0.0]

    def convolution(precision):
        seconds = milliseconds[precision] / 1000
        return lambda: now.__setitem__(0, now[0] + seconds)

    monkeypatch.setattr(openvino_engine, "processor_flags", lambda: flags)
    monkeypatch.setattr(openvino_engine, "_convolution", convolution)
    monkeypatch.setattr(openvino_engine.time, "perf_counter", lambda: now[0])
    openvino_engine._convolution_is_faster.cache_clear()
    try:
        assert bfloat16_is_faster() == expected
    finally:
        openvino_engine._convolution_is_faster.cache_clear()


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_what_is_timed_is_the_convolution(precision):
    found = openvino_engine._convolution(precision)()[0]
    channels, bins, frames = openvino_engine.TRIED
    assert found.shape == (1, channels, bins, frames)
    assert found[0, 0, 1, 1] == pytest.approx(9 * channels * 0.01, rel=0.01)


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
