"""The precisions of an exported graph: weights of 16 bits, or arithmetic in 8."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.deploy.graph import FRONT_END, import_onnx
from svtoolkit.errors import UserError

PRECISIONS = ("fp32", "fp16", "bf16", "int8")

LEAST_VALUES = 1024
"""Constants of fewer numbers stay in float32: they are a share of the file that nobody sees."""

QUANTISED = ["Conv", "Relu", "Add"]
"""Operations in 8 bits: where the time goes, and the sums of residual blocks between."""

LINEAR = ("Gemm", "MatMul")
"""Operations whose weights alone have 8 bits: statistics of an utterance, which they take, differ too much in size for
one scale, and they take no time."""


def store_in_16_bits(content: bytes, precision: str) -> bytes:
    """The weights of a graph in float16 or bfloat16, each widened to float32 where it is used.

    Runtimes widen them once, when they load the file, and then compute in float32, or in what they are told to.
    """
    onnx = import_onnx()
    model = onnx.load_from_string(content)
    graph = model.graph
    wide = [each for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT]
    kept = [each for each in wide if np.prod(each.dims) < LEAST_VALUES or each.name.startswith(FRONT_END)]
    names = {each.name for each in kept}
    casts = []
    for tensor in [each for each in wide if each.name not in names]:
        values = onnx.numpy_helper.to_array(tensor)
        narrow = f"{tensor.name}.{precision}"
        if precision == "fp16":
            stored = onnx.numpy_helper.from_array(values.astype(np.float16), narrow)
        else:
            kind = onnx.TensorProto.BFLOAT16
            stored = onnx.helper.make_tensor(narrow, kind, values.shape, _bfloat16(values).tobytes(), raw=True)
        casts.append(onnx.helper.make_node("Cast", [narrow], [tensor.name], f"widen {tensor.name}", to=1))
        graph.initializer.remove(tensor)
        graph.initializer.append(stored)
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return bytes(model.SerializeToString())


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32, rounded to nearest, ties to even: uint16 of the same shape."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def quantise(content: bytes, name: str, inputs: Sequence[np.ndarray]) -> bytes:
    """A graph whose convolutions are in 8 bits, as QuantizeLinear and DequantizeLinear around them.

    Activations are unsigned, of a scale for each tensor that holds all that was seen of it; weights are signed, of a
    scale for each channel, by which no two of them are above 128 together: AVX2 adds products of unsigned and signed
    bytes in pairs in 16 bits, where more saturate, and other processors do not, so that scores would depend on the
    processor.

    Args:
        content: of the file, in float32.
        name: of its input.
        inputs: what the graph takes of real recordings, (1, ...) each.

    Raises:
        UserError: onnxruntime or onnx is missing, or cannot quantise the graph.
    """
    onnx = import_onnx()
    try:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise UserError(
            f"precision=int8 needs onnxruntime, which cannot be imported ({error}); `pip install onnxruntime`"
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        whole, prepared, quantised = (Path(folder) / f"{each}.onnx" for each in ("whole", "prepared", "quantised"))
        whole.write_bytes(content)
        root = logging.getLogger()
        level = root.level
        root.setLevel(logging.ERROR)  # it advises on what has been done
        try:
            quant_pre_process(whole, prepared, skip_symbolic_shape=True)
            graph = onnx.load(prepared).graph
            nodes = _eight_bit_nodes(graph)
            quantize_static(
                prepared,
                quantised,
                _Reader(name, inputs),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=QUANTISED,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                nodes_to_quantize=nodes,
                extra_options={"TensorQuantOverrides": _ranges(graph, nodes)},
            )
        except Exception as error:  # what it raises is not documented
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"the graph cannot be quantised ({type(error).__name__}: {reason})") from error
        finally:
            root.setLevel(level)
        return _narrow_linear(quantised.read_bytes())


def _narrow_linear(content: bytes) -> bytes:
    """Matrices of linear layers in 8 bits, of a scale for each of their outputs, widened where they are used."""
    onnx = import_onnx()
    model = onnx.load_from_string(content)
    graph = model.graph
    matrices = {
        each.name: each
        for each in graph.initializer
        if each.data_type == onnx.TensorProto.FLOAT and len(each.dims) == 2 and np.prod(each.dims) >= LEAST_VALUES
    }
    widened = []
    for node in graph.node:
        tensor = matrices.get(node.input[1]) if node.op_type in LINEAR else None
        if tensor is None or tensor.name.startswith(FRONT_END) or node.name.lstrip("/").startswith(FRONT_END):
            continue
        del matrices[tensor.name]
        transposed = any(each.name == "transB" and each.i for each in node.attribute)
        axis = 0 if transposed else 1
        values = onnx.numpy_helper.to_array(tensor)
        scales = np.maximum(np.abs(values).max(axis=1 - axis), 1e-30).astype(np.float32) / np.float32(127)
        rounded = np.rint(values / np.expand_dims(scales, 1 - axis)).astype(np.int8)
        names = [f"{tensor.name}.int8", f"{tensor.name}.scale"]
        widened.append(
            onnx.helper.make_node("DequantizeLinear", names, [tensor.name], f"widen {tensor.name}", axis=axis)
        )
        graph.initializer.remove(tensor)
        graph.initializer.extend(map(onnx.numpy_helper.from_array, (rounded, scales), names))
    nodes = [*widened, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return bytes(model.SerializeToString())


class _Reader:
    """What ``quantize_static`` asks for its inputs."""

    def __init__(self, name: str, inputs: Sequence[np.ndarray]) -> None:
        self._left = [{name: values} for values in inputs]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop(0) if self._left else None

    def __len__(self) -> int:
        return len(self._left)


def _eight_bit_nodes(graph: Any) -> list[str]:
    """Convolutions, and what follows one of them at once: sums of two such values, and their rectifiers.

    Other sums stay in float32. The pooling adds a constant to variances, which differ by orders of magnitude from
    channel to channel: one scale for all of them leaves nothing of the small ones.
    """
    made: set[str] = set()
    chosen = []
    for node in graph.node:  # in the order in which they are computed
        if node.name.lstrip("/").startswith(FRONT_END) or node.op_type not in QUANTISED:
            continue
        if node.op_type == "Conv" or made.issuperset(node.input):
            chosen.append(node.name)
            made.update(node.output)
    return chosen


def _ranges(graph: Any, nodes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Kernel of a convolution -> of each channel the value that becomes 127: the sum of its two largest.

    Rounded, these two are 128 at most. Alike they have 7 bits; the largest alone, where a kernel holds an identity, 8.
    """
    kernels = {node.input[1] for node in graph.node if node.op_type == "Conv" and node.name in nodes}
    ranges = {}
    for tensor in graph.initializer:
        if tensor.name in kernels:
            sizes = np.abs(import_onnx().numpy_helper.to_array(tensor)).reshape(tensor.dims[0], -1)
            largest = np.sort(sizes)[:, -2:].sum(1)
            ranges[tensor.name] = [{"axis": 0, "rmin": -each, "rmax": each} for each in largest]
    return ranges
