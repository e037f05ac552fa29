"""ONNX files as small as they can be: the mean of a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

SHAPE = ("B", "T", 80)
WEIGHTS = np.random.default_rng(3).standard_normal((80, 4)).astype(np.float32)


def small_graph(
    shape: Sequence[str | int] = SHAPE,
    *,
    names: tuple[str, str] = ("feats", "embs"),
    batch: str | int = "B",
    size: str | int = 4,
    weights: onnx.TensorProto | None = None,
    extra: Sequence[onnx.NodeProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """Features -> their mean over time times ``WEIGHTS``."""
    given, embedding = names
    if weights is None:
        weights = helper.make_tensor("w", TensorProto.FLOAT, WEIGHTS.shape, WEIGHTS)
    nodes = [
        helper.make_node("MatMul", [given, "w"], ["y"]),
        helper.make_node("ReduceMean", ["y"], [embedding], axes=[1], keepdims=0),
        *extra,
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(embedding, TensorProto.FLOAT, [batch, size])],
        [weights],
    )
    versions = [helper.make_opsetid("", 14), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def nemo_graph() -> onnx.ModelProto:
    """As NeMo exports: (batch, bins, frames), a number of frames each, logits before the embedding, which is divided
    by that number."""
    nodes = [
        helper.make_node("Transpose", ["audio_signal"], ["x"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axis"], ["total"], keepdims=0),
        helper.make_node("Cast", ["length"], ["frames"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["frames", "axis"], ["column"]),
        helper.make_node("Div", ["total", "column"], ["embs"]),
        helper.make_node("Identity", ["embs"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "nemo",
        [
            helper.make_tensor_value_info("audio_signal", TensorProto.FLOAT, ["B", 80, "T"]),
            helper.make_tensor_value_info("length", TensorProto.INT64, ["B"]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", "D"]) for name in ("logits", "embs")],
        [
            helper.make_tensor("w", TensorProto.FLOAT, WEIGHTS.shape, WEIGHTS),
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def in_another_file() -> onnx.TensorProto:
    """A tensor whose content is in a file beside."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=WEIGHTS.shape)
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    return tensor


def write_graph(path: Path, graph: onnx.ModelProto, said: Mapping[str, object] = {}) -> Path:
    """With metadata."""
    helper.set_model_props(graph, {key: str(value) for key, value in said.items()})
    path.write_bytes(graph.SerializeToString())
    return path
