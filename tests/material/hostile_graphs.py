"""ONNX files that mean harm: content elsewhere, operators of one's own, sizes and loops without end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnx_material import WEIGHTS, small_graph
from small_releases import Files, onnx_bytes

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def poisoned(said: Mapping[str, Any]) -> Iterator[tuple[str, Files, bool]]:
    """Name, files, and whether they have to be refused."""
    for name, (graph, refused) in {**_elsewhere(), **_operators(), **_sizes(), **_endless()}.items():
        metadata = {key: value for key, value in said.items() if key != "output_dim"}
        yield name, {"model.onnx": onnx_bytes(graph, metadata)}, refused
    for name, value in {
        "a path": "../../HARM",
        "code": "__import__('os').system('touch HARM')",
        "a line": "a\nb",
    }.items():
        for key in ("custom_ops_library", "language", "url", "comment"):
            yield f"{key} is {name}", {"model.onnx": onnx_bytes(small_graph(), {**said, key: value})}, False
    good = onnx_bytes(small_graph(), said)
    yield "messages in depth", {"model.onnx": good + _deep(300)}, True
    for name, content in {
        "nothing": b"", "a varint without end": b"\xff" * 64, "a length of 2**62": b"\x3a" + b"\xff" * 8 + b"\x3f",
        "a group": b"\x3b\x3b\x3b", "ORT's own": b"\x18\x00\x00\x00ORTM" + bytes(64), "a program": b"touch HARM\n",
        "two graphs": good + good, "cut off": good[:-10],
        "a field of 2**61": good + b"\xf8\xff\xff\xff\xff\xff\xff\xff\x7f\x01",
    }.items():  # fmt: skip
        yield name, {"model.onnx": content}, name not in ("two graphs", "a field of 2**61")


Graphs = dict[str, tuple[onnx.ModelProto, bool]]


def _elsewhere() -> Graphs:
    """Tensors whose content is in other files, in every place that a tensor may have."""
    found: Graphs = {}
    for place in ("/etc/passwd", "../../../etc/passwd", "weights.bin", "*/_ORT_MEM_ADDR_/*", "/dev/zero", "HARM\0x"):
        tensor = TensorProto(name="w", data_type=FLOAT, dims=WEIGHTS.shape, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": place, "offset": "0", "length": str(1 << 40)}.items():
            tensor.external_data.add(key=key, value=value)
        found[f"content in {place!r}"] = small_graph(weights=tensor), True
        constant = small_graph()
        constant.graph.node.append(node("Constant", [], ["more"], value=tensor))
        found[f"a constant in {place!r}"] = constant, True
        function = small_graph(domains=("own",))
        inside = [node("Constant", [], ["y"], value=tensor)]
        function.functions.append(helper.make_function("own", "F", [], ["y"], inside, [helper.make_opsetid("", 14)]))
        found[f"a function's in {place!r}"] = function, True
        sparse = small_graph()
        sparse.graph.sparse_initializer.add(values=tensor, dims=WEIGHTS.shape)
        found[f"a sparse one in {place!r}"] = sparse, True
    return found


def _operators() -> Graphs:
    """Operators that are not of ONNX."""
    found: Graphs = {}
    for domain in ("own", "ai.onnx.contrib", "com.microsoft", "ai.onnx.ml", "org.pytorch.aten", "com.microsoft.nchwc"):
        for name in ("PyOp", "ATen", "PythonOp", "Harm"):
            extra = [node(name, ["feats"], ["more"], domain=domain, module="os", func_name="system", name="touch HARM")]
            found[f"{name} of {domain}"] = small_graph(extra=extra, domains=(domain,)), True
    for name, calls in {"a function": "Square", "one that calls itself": "F"}.items():
        graph = small_graph(extra=[node("F", ["feats"], ["more"], domain="own")], domains=("own",))
        body = [node("Mul", ["x", "x"], ["y"])] if calls == "Square" else [node("F", ["x"], ["y"], domain="own")]
        versions = [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
        graph.functions.append(helper.make_function("own", "F", ["x"], ["y"], body, versions))
        found[name] = graph, calls == "F"
    circle = small_graph(extra=[node("Add", ["a", "feats"], ["b"]), node("Add", ["b", "feats"], ["a"])])
    found["a circle"] = circle, True
    return found


def _sizes() -> Graphs:
    """Sizes that no memory has, of what is given, of weights and of what is made."""
    found: Graphs = {}
    for size in (1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -1):
        for place in range(3):
            shape: list[str | int] = ["B", "T", 80]
            shape[place] = size
            found[f"an input with {size} at {place}"] = small_graph(shape), False
            free = small_graph(shape)
            del free.graph.node[:]
            free.graph.node.extend([node("ReduceMean", ["feats"], ["mean"], axes=[1], keepdims=0), *_unknown("mean")])
            free.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "D"
            found[f"an input with {size} at {place}, and any output"] = free, False
        found[f"an output of {size}"] = small_graph(size=size), False
        for raw in (b"", bytes(16)):
            tensor = TensorProto(name="w", data_type=FLOAT, dims=[size, 4], raw_data=raw)
            found[f"weights of {size} in {len(raw)} bytes"] = small_graph(weights=tensor), True
    for size in (1 << 33, 1 << 50):
        found[f"{size} zeros each frame"] = _running([node("ConstantOfShape", ["many"], ["more"])], size), True
    return found


def _endless() -> Graphs:
    """Loops."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["sum", "sum"], ["next"])],
        "body",
        [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", INT64), ("go", BOOL), ("sum", FLOAT))],
        [helper.make_tensor_value_info(name, kind, []) for name, kind in (("on", BOOL), ("next", FLOAT))],
    )
    nodes = [node("Squeeze", ["many"], ["count"]), node("Loop", ["count", "true", "zero"], ["more"], body=body)]
    return {"a loop without end": (_running(nodes, 1 << 62), True)}


def _running(nodes: list[onnx.NodeProto], many: int) -> onnx.ModelProto:
    """Nodes that make ``more`` of ``many`` as soon as the graph is run, which its unknown size of output asks for."""
    graph = small_graph(size="D")
    del graph.graph.node[:]
    graph.graph.initializer.extend([
        helper.make_tensor("factor", INT64, [1], [many]), helper.make_tensor("true", BOOL, [], [True]),
        helper.make_tensor("zero", FLOAT, [], [0.0]), helper.make_tensor("first", INT64, [1], [0]),
    ])  # fmt: skip
    graph.graph.node.extend([
        node("Shape", ["feats"], ["shape"]), node("ReduceMin", ["shape"], ["least"], keepdims=0),
        node("Mul", ["least", "factor"], ["many"]), *nodes,
        node("ReduceMax", ["more"], ["most"], keepdims=0), node("MatMul", ["feats", "w"], ["y"]),
        node("Add", ["y", "most"], ["z"]), node("ReduceMean", ["z"], ["mean"], axes=[1], keepdims=0), *_unknown("mean"),
    ])  # fmt: skip
    return graph


def _unknown(name: str) -> list[onnx.NodeProto]:
    """The same as ``embs``, of a shape that is known when it is run."""
    return [node("Shape", [name], ["size"]), node("Reshape", [name, "size"], ["embs"])]


def _deep(depth: int) -> bytes:
    """Graphs in attributes of nodes of graphs."""
    message = b""
    for _ in range(depth):
        for field in (6, 5, 1):
            message = bytes([field << 3 | 2]) + _varint(len(message)) + message
    return b"\x3a" + _varint(len(message)) + message


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])
