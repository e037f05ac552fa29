"""The convolutions of a graph as a network of ncnn, and what is before and after them as graphs.

ncnn has no batches and few of the operations of ONNX, but 3x3 convolutions with a quarter of the multiplications
(F(4x4, 3x3) of Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016). So it gets the stretch
in which a ResNet spends its time: convolutions in two dimensions, rectifiers and sums, from one tensor to one tensor.
The mean of the features before it, pooling and embedding after it stay with onnxruntime.

The format of its networks: https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

MAGIC = 7767517
"""What a description of a network begins with."""

OTHERS = {"Relu": "ReLU", "Add": "BinaryOp", "BatchNormalization": "BatchNorm"}
"""What ncnn gets beside convolutions, of maps -> its word."""

FIRST = "b0"
"""The blob that goes in."""

FLOAT32 = bytes(4)
"""What stands before the weights of a layer: that they are in float32."""


class Divided(NamedTuple):
    """A graph in three parts.

    Attributes:
        before: graph from its input to ``entry``; None: that is its input.
        network: layers of ncnn.
        weights: of these layers.
        first, last: names of the blobs that go in and come out.
        entry, exit: names of the tensors between the parts, (batch, channels, bins, frames).
        channels: of ``entry``.
        after: graph from ``exit``, and from the input where it needs that, too, to the output; None: that is ``exit``.
    """

    before: bytes | None
    network: str
    weights: bytes
    first: str
    last: str
    entry: str
    exit: str
    channels: int
    after: bytes | None


def divide(content: bytes) -> Divided:
    """Divide a graph, whose content was checked, at its convolutions.

    Raises:
        ImportError: the package onnx is missing.
        ValueError: it has convolutions that are not of one such stretch, and says what stands between them; their sizes
            do not fit each other.
    """
    import onnx

    model = onnx.load_from_string(content)
    graph = model.graph
    constants = _constants(graph, onnx)
    convolutions = [node for node in graph.node if _is_convolution(node, constants)]
    if not convolutions:
        raise ValueError("it has no convolutions in two dimensions in float32, which are what ncnn is for")
    entry = convolutions[0].input[0]
    stretch = _stretch(graph, entry, constants)
    inside = {name for node in stretch for name in node.output}
    for node in convolutions:
        if node.output[0] not in inside:
            between = _unknown_before(graph, node, inside)
            raise ValueError(
                f"it has an operation {between.op_type} between or in its convolutions, of which ncnn gets none but "
                f"Conv, {', '.join(OTHERS)}"
            )
    read_outside = {name for node in graph.node if node.output[0] not in inside for name in node.input}
    exits = sorted(inside & (read_outside | {each.name for each in graph.output}))
    if len(exits) != 1:
        raise ValueError(f"{len(exits)} maps of its convolutions are read by other operations, expected one")
    channels = _check_sizes(stretch, entry, constants)
    blobs, weights = _layers(stretch, entry, exits[0], constants)
    inputs, output = {each.name for each in graph.input}, graph.output[0].name
    return Divided(
        None if entry in inputs else _part(onnx, model, (), entry),
        blobs.description(),
        weights,
        FIRST,
        blobs.read(exits[0]),
        entry,
        exits[0],
        channels,
        None if output in exits else _part(onnx, model, exits, output),
    )


def _constants(graph: Any, onnx: ModuleType) -> dict[str, np.ndarray]:
    """Initialisers, and what is one under another name or widened to float32, by name."""
    found = {each.name: each for each in graph.initializer}
    values = {name: onnx.numpy_helper.to_array(each) for name, each in found.items()}
    for node in graph.node:
        if node.op_type not in ("Cast", "Identity") or node.input[0] not in values:
            continue
        kind = next((each.i for each in node.attribute if each.name == "to"), None)
        if kind in (None, onnx.TensorProto.FLOAT):
            value = values[node.input[0]]
            values[node.output[0]] = value if kind is None else value.astype(np.float32)
    return values


def _is_convolution(node: Any, constants: dict[str, np.ndarray]) -> bool:
    """Whether it is one in two dimensions, of constants in float32."""
    if node.op_type != "Conv" or not all(each in constants for each in node.input[1:]):
        return False
    weights = [constants[each] for each in node.input[1:]]
    padded = next((each.s for each in node.attribute if each.name == "auto_pad"), b"NOTSET")
    return padded == b"NOTSET" and weights[0].ndim == 4 and all(each.dtype == np.float32 for each in weights)


def _stretch(graph: Any, entry: str, constants: dict[str, np.ndarray]) -> list[Any]:
    """The operations that ncnn can have of ``entry``, and of what they make."""
    made = {entry}
    found = []
    for node in graph.node:  # in the order in which they are computed
        known = _is_convolution(node, constants) or node.op_type in OTHERS
        maps = [name for name in node.input if name not in constants]
        if known and made.issuperset(maps) and len(maps) == (2 if node.op_type == "Add" else 1):
            found.append(node)
            made.update(node.output)
    return found


def _unknown_before(graph: Any, last: Any, inside: set[str]) -> Any:
    """Of the operations outside that lead to one, the nearest that ncnn does not get; itself where there is none."""
    makers = {output: node for node in graph.node for output in node.output if output not in inside}
    waiting = [last]
    for node in waiting:
        if node.op_type not in (*OTHERS, last.op_type, "Constant"):
            return node
        waiting += [makers[name] for name in node.input if name in makers and makers[name] not in waiting]
    return last


class _Blobs:
    """Names of ncnn's blobs. Each is read once: of a tensor that is read several times copies are made, which cost
    nothing."""

    def __init__(self, readers: Counter[str]) -> None:
        self._layers: list[str] = []
        self._count = 0
        self._readers = readers
        self._of_tensor: dict[str, list[str]] = {}

    def add(self, kind: str, read: Iterable[str], made: str, settings: str = "") -> None:
        """A layer that reads tensors and makes one."""
        blobs = [self.read(name) for name in read]
        self._append(kind, blobs, [self._name(made)], settings)
        if self._readers[made] > 1:
            whole = self._of_tensor[made].pop()
            self._append("Split", [whole], [self._name(made) for _ in range(self._readers[made])])

    def read(self, tensor: str) -> str:
        return self._of_tensor[tensor].pop()

    def description(self) -> str:
        return "\n".join([str(MAGIC), f"{len(self._layers)} {self._count}", *self._layers, ""])

    def _name(self, tensor: str) -> str:
        name = f"b{self._count}"
        self._count += 1
        self._of_tensor.setdefault(tensor, []).append(name)
        return name

    def _append(self, kind: str, read: list[str], made: list[str], settings: str = "") -> None:
        name = f"l{len(self._layers)}"
        self._layers.append(" ".join([kind, name, str(len(read)), str(len(made)), *read, *made, settings]).rstrip())


class _Geometry(NamedTuple):
    """Of a convolution; pairs are of (bins, frames), padding is at their begins and then at their ends."""

    sizes: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    groups: int

    @classmethod
    def of(cls, node: Any, kernel: np.ndarray) -> _Geometry:
        given: dict[str, Any] = {each.name: list(each.ints) or each.i for each in node.attribute}
        strides, dilations = given.get("strides", [1, 1]), given.get("dilations", [1, 1])
        return cls(kernel.shape[2:], strides, dilations, given.get("pads", [0] * 4), given.get("group", 1))

    def steps(self) -> tuple[tuple[int, int], ...]:
        """(reach, stride) of each axis, of which n values become (n - reach) // stride + 1."""
        reaches = [
            dilation * (size - 1) + 1 - self.pads[axis] - self.pads[axis + 2]
            for axis, (size, dilation) in enumerate(zip(self.sizes, self.dilations, strict=True))
        ]
        return tuple(zip(reaches, self.strides, strict=True))

    def is_sound(self) -> bool:
        return min(*self.sizes, *self.strides, *self.dilations, self.groups) > 0 and min(self.pads) >= 0


def _check_sizes(stretch: list[Any], entry: str, constants: dict[str, np.ndarray]) -> int:
    """Refuse layers that do not fit the maps they read, which ncnn believes; the channels of ``entry``."""
    first = stretch[0]
    kernel = constants[first.input[1]]
    begin = kernel.shape[1] * _Geometry.of(first, kernel).groups
    found: dict[str, tuple[int, tuple[Any, ...], tuple[Any, ...]]] = {entry: (begin, (), ())}
    for node in stretch:
        channels, *axes = found[node.input[0]]
        weights = [constants[name] for name in node.input if name in constants]
        if node.op_type == "Conv":
            kernel, *bias = weights
            geometry = _Geometry.of(node, kernel)
            fits = geometry.is_sound() and kernel.shape[1] * geometry.groups == channels
            fits = fits and len(kernel) % geometry.groups == 0 and all(each.shape == (len(kernel),) for each in bias)
            channels = len(kernel)
            axes = [
                (*axis, step) if step != (1, 1) else axis for axis, step in zip(axes, geometry.steps(), strict=True)
            ]
        elif node.op_type == "Add":
            fits = found[node.input[0]] == found[node.input[1]]
        else:
            fits = all(each.shape == (channels,) for each in weights)
        if not fits:
            raise ValueError(f"its {node.op_type} {node.name!r:.80} does not fit the maps that it reads")
        found[node.output[0]] = (channels, axes[0], axes[1])
    return begin


def _layers(stretch: list[Any], entry: str, exit: str, constants: dict[str, np.ndarray]) -> tuple[_Blobs, bytes]:
    """The layers of a network and their weights."""
    readers = Counter(name for node in stretch for name in node.input if name not in constants)
    readers[exit] += 1
    rectified = {
        node.input[0]: node.output[0] for node in stretch if node.op_type == "Relu" and readers[node.input[0]] == 1
    }
    blobs, weights, done = _Blobs(readers), [], set()
    blobs.add("Input", [], entry)
    for node in stretch:
        made = node.output[0]
        if made in done:
            continue
        if node.op_type == "Conv":
            kernel, *bias = (constants[name] for name in node.input[1:])
            result = rectified.get(made, made)
            done.add(result)
            settings = _settings(node, kernel, has_bias=bool(bias), rectify=result != made)
            kind = "ConvolutionDepthWise" if "7=" in settings else "Convolution"
            blobs.add(kind, node.input[:1], result, settings)
            weights += [FLOAT32, *(np.ascontiguousarray(each, "<f4").tobytes() for each in (kernel, *bias))]
        elif node.op_type == "BatchNormalization":
            scale, shift, mean, variance = (constants[name] for name in node.input[1:])
            epsilon = next((each.f for each in node.attribute if each.name == "epsilon"), 1e-5)
            blobs.add(OTHERS[node.op_type], node.input[:1], made, f"0={len(scale)} 1={epsilon:.9g}")
            weights += [np.ascontiguousarray(each, "<f4").tobytes() for each in (scale, mean, variance, shift)]
        else:
            blobs.add(OTHERS[node.op_type], node.input, made, "0=0")  # a slope of 0; of a sum: that it is one
    return blobs, b"".join(weights)


def _settings(node: Any, kernel: np.ndarray, *, has_bias: bool, rectify: bool) -> str:
    """Of a convolution, by the numbers that ncnn has for them."""
    (height, width), strides, dilations, (top, left, bottom, right), groups = _Geometry.of(node, kernel)
    numbers = {
        0: len(kernel), 1: width, 11: height, 2: dilations[1], 12: dilations[0], 3: strides[1], 13: strides[0],
        4: left, 15: right, 14: top, 16: bottom, 5: int(has_bias), 6: kernel.size, 9: int(rectify),
    } | ({7: groups} if groups > 1 else {})  # fmt: skip
    return " ".join(f"{number}={value}" for number, value in numbers.items())


def _part(onnx: ModuleType, model: Any, entries: Iterable[str], output: str) -> bytes:
    """The graph that makes a tensor of the model's input and of ``entries``."""
    graph = model.graph
    needed: set[str] = {output}
    nodes: list[Any] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output) and not set(node.output) & set(entries):
            nodes.insert(0, node)
            needed.update(node.input)
    kind = onnx.TensorProto.FLOAT
    sizes = [onnx.helper.make_tensor_value_info(name, kind, ["batch", None, None, None]) for name in entries]
    part = onnx.helper.make_graph(
        nodes,
        "part",
        [each for each in graph.input if each.name in needed] + sizes,
        [each for each in graph.output if each.name == output]
        or [onnx.helper.make_tensor_value_info(output, kind, ["batch", None, None, None])],
        [each for each in graph.initializer if each.name in needed],
    )
    made = onnx.helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    return bytes(made.SerializeToString())
