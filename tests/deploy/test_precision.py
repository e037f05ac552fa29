"""Weights of 16 bits, and arithmetic in 8."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from exported_material import cosine_of
from onnx import numpy_helper

from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.precision import LEAST_VALUES, quantise, store_in_16_bits
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.runtime.engines import OnnxRuntime, OpenVino, installed

torch.set_num_threads(1)
FRONT_END = front_end_of(features_config({"num_bins": 24}))


@pytest.fixture(scope="module")
def content() -> bytes:
    torch.manual_seed(0)
    network = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=8)
    network.train()
    with torch.no_grad():
        network(torch.randn(4, 80, 24))
    return export_graph(network.eval(), FRONT_END, waveform=False)


def features(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 60, 24)).astype(np.float32)


def embed(content: bytes, seed: int = 1) -> np.ndarray:
    return OnnxRuntime(content, 1).run("feats", features(seed))[0]


@pytest.mark.parametrize(("precision", "dtype", "least"), [("fp16", "FLOAT16", 0.999999), ("bf16", "BFLOAT16", 0.9995)])
def test_16_bits(content, precision, dtype, least):
    narrow = store_in_16_bits(content, precision)
    assert len(narrow) < 0.6 * len(content)
    assert cosine_of(embed(narrow), embed(content)) > least
    kinds = {each.name: each.data_type for each in onnx.load_from_string(narrow).graph.initializer}
    large = [
        each.name for each in onnx.load_from_string(content).graph.initializer if np.prod(each.dims) >= LEAST_VALUES
    ]
    assert large
    assert {kinds[f"{name}.{precision}"] for name in large} == {getattr(onnx.TensorProto, dtype)}


def test_bfloat16_is_rounded_as_torch_rounds(content):
    stored = {each.name: each for each in onnx.load_from_string(store_in_16_bits(content, "bf16")).graph.initializer}
    for each in onnx.load_from_string(content).graph.initializer:
        narrow = stored.get(f"{each.name}.bf16")
        if narrow is not None:
            expected = torch.from_numpy(numpy_helper.to_array(each).copy()).bfloat16().float().numpy()
            np.testing.assert_array_equal(numpy_helper.to_array(narrow).astype(np.float32), expected)


def test_8_bits(content):
    quantised = quantise(content, "feats", [features(seed) for seed in range(8)])
    graph = onnx.load_from_string(quantised).graph
    kinds = [node.op_type for node in graph.node]
    assert {"QuantizeLinear", "DequantizeLinear"} <= set(kinds)
    assert cosine_of(embed(quantised), embed(content)) > 0.99
    if "openvino" in installed():
        assert cosine_of(OpenVino(quantised, 1).run("feats", features(1))[0], embed(quantised)) > 0.999
    weights = [numpy_helper.to_array(each) for each in graph.initializer if each.data_type == onnx.TensorProto.INT8]
    scales = {each.name: each.dims for each in graph.initializer}
    per_channel = [
        node for node in graph.node
        if node.op_type == "DequantizeLinear" and list(scales.get(node.input[1], [])) not in ([], [1])
    ]  # fmt: skip
    assert len(per_channel) >= sum(each.ndim == 4 for each in weights)


def test_no_two_products_of_a_kernel_saturate(content):
    """In 16 bits, whichever two are added; and no more precision is given away for it."""
    model = onnx.load_from_string(content)
    kernels = [each for each in model.graph.initializer if len(each.dims) == 4 and each.dims[0] > 1]
    odd = numpy_helper.to_array(kernels[0]).copy()
    odd[0], odd[1] = 0.01 * odd[0] / np.abs(odd[0]).max(), 0
    odd[0].flat[4] = -3  # alone, as where the identity has been added to a kernel
    kernels[0].CopyFrom(numpy_helper.from_array(odd, kernels[0].name))
    whole = {each.name: numpy_helper.to_array(each) for each in kernels}
    narrow = onnx.load_from_string(quantise(model.SerializeToString(), "feats", [features(0)])).graph
    constants = {each.name: numpy_helper.to_array(each) for each in narrow.initializer}
    widened = {node.input[0].removesuffix("_quantized"): node.input for node in narrow.node
               if node.op_type == "DequantizeLinear"}  # fmt: skip
    assert set(whole) <= set(widened)
    for name, kernel in whole.items():
        values, scale = constants[widened[name][0]].astype(int), constants[widened[name][1]].astype(np.float64)
        largest = np.sort(np.abs(values).reshape(len(values), -1))[:, -2:]
        assert 255 * largest.sum(1).max() < 2**15
        off = np.abs(kernel - values * scale[:, None, None, None]).reshape(len(values), -1).max(1)
        sizes = np.sort(np.abs(kernel.astype(np.float64)).reshape(len(values), -1))
        assert (off <= 0.501 / 127 * sizes[:, -2:].sum(1)).all()
    values = constants[widened[kernels[0].name][0]]
    assert values[0].flat[4] < -120
    assert not values[1].any()


def test_variances_stay_in_float32(content):
    graph = onnx.load_from_string(quantise(content, "feats", [features(0)])).graph
    made_by = {name: node for node in graph.node for name in node.output}
    sums = [node for node in graph.node if node.op_type == "Add"]
    in_8_bits = [
        "DequantizeLinear" in {made_by[name].op_type for name in node.input if name in made_by} for node in sums
    ]
    assert in_8_bits == ["pooling" not in node.name for node in sums]
    assert in_8_bits.count(True) == 4


def test_features_inside_stay_in_float32():
    network = build_model("xvector", num_bins=24, embedding_dim=8).eval()
    content = export_graph(network, FRONT_END, waveform=True)
    sound = np.random.default_rng(0).standard_normal((1, 8000)).astype(np.float32) * 0.1
    for narrow in (store_in_16_bits(content, "bf16"), quantise(content, "waveform", [sound])):
        graph = onnx.load_from_string(narrow).graph
        constants = [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
        kernels = [each for each in (*graph.initializer, *constants) if list(each.dims) == [514, 1, 400]]
        assert [each.data_type for each in kernels] == [onnx.TensorProto.FLOAT]
