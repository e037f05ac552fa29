"""ONNX graphs as bytes: what one may not hold, and a session that runs it. Nothing in one is code.

A file is a message of protocol buffers (onnx/onnx.proto); it is walked without the package onnx. What may not be in it
are tensors whose content is in other files: their paths could lead anywhere. Libraries of custom operators are never
registered, so that an operator that onnxruntime does not have is an error of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from svtoolkit.errors import UserError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, RunOptions

LARGEST = (2 << 30) - 1
"""Bytes of a message of protocol buffers."""

DEEPEST = 64
"""Messages within messages."""

INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "tensor": {},
}
"""Message -> its fields that may hold tensors."""

METADATA = 14
"""Field of a model that holds a pair of texts."""

EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a tensor that say where its content is; location 0: here."""

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5

PREFIX = "[ONNXRuntimeError]"
LONGEST = 300
"""Letters of what onnxruntime says; the reason is at the end, after places in its source."""


MOST_NUMBERS = 1 << 26
"""That a graph may ask for at once, where it fixes how many."""

PROBE_FRAMES, PROBE_BYTES, PROBE_SECONDS = 200, 4 << 30, 60.0
"""Of the features that a graph is tried with, and what it may take for them."""


class Input(NamedTuple):
    """What a graph takes.

    Attributes:
        frames: name of the features.
        bins: mel bins, where the graph fixes them.
        bins_first: features are (batch, bins, frames).
        batch: utterances together, where the graph fixes that.
        length: frames, where the graph fixes them.
        lengths: name of the input for the number of frames of each; None: there is none.
    """

    frames: str
    bins: int | None
    bins_first: bool
    batch: int | None
    length: int | None
    lengths: str | None


def check_graph(content: bytes) -> None:
    """Refuse what is no ONNX file, and one that names other files.

    Raises:
        ValueError: says what was found.
    """
    if len(content) > LARGEST:
        raise ValueError(f"it has {len(content)} bytes, expected {LARGEST} at most")
    view = memoryview(content)
    waiting = [("model", 0, len(content), 0)]
    has_graph = False
    while waiting:
        message, position, end, depth = waiting.pop()
        if depth > DEEPEST:
            raise ValueError(f"its messages are nested more than {DEEPEST} deep")
        while position < end:
            key, position = _varint(view, position, end)
            field, wire = key >> 3, key & 7
            if wire == VARINT:
                value, position = _varint(view, position, end)
                if message == "tensor" and field == DATA_LOCATION and value:
                    raise ValueError("a tensor of it has its content in another file, which is not read")
                continue
            size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(wire)
            if wire == LENGTH:
                size, position = _varint(view, position, end)
            if size is None or position + size > end:
                raise ValueError("it is cut off, or no ONNX file")
            if message == "tensor" and field == EXTERNAL_DATA:
                raise ValueError("a tensor of it has its content in another file, which is not read")
            if wire == LENGTH and field in INSIDE[message]:
                has_graph |= message == "model" and field == 7
                waiting.append((INSIDE[message][field], position, position + size, depth + 1))
            position += size
    if not has_graph:
        raise ValueError("it holds no graph, so it is no ONNX file")


def metadata_of(content: bytes) -> dict[str, str]:
    """The metadata of a file, text by name, without a session.

    Raises:
        ValueError: the file is cut off, or no ONNX file.
    """
    view, found = memoryview(content), {}
    for field, start, end in _fields(view, 0, len(content)):
        if field == METADATA:
            pair = {key: bytes(view[begin:stop]) for key, begin, stop in _fields(view, start, end)}
            try:
                found[pair.get(1, b"").decode()] = pair.get(2, b"").decode()
            except UnicodeDecodeError as error:
                raise ValueError("its metadata are no text") from error
    return found


def _fields(view: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Of a message the fields that have a length: number, begin, end."""
    while position < end:
        key, position = _varint(view, position, end)
        if key & 7 == VARINT:
            _, position = _varint(view, position, end)
            continue
        size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(key & 7)
        if key & 7 == LENGTH:
            size, position = _varint(view, position, end)
        if size is None or position + size > end:
            raise ValueError("it is cut off, or no ONNX file")
        if key & 7 == LENGTH:
            yield key >> 3, position, position + size
        position += size


def _varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            break
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("it is cut off, or no ONNX file")


def open_session(
    content: bytes, *, device: str | None = None, threads: int = 1, bounded: bool = False
) -> InferenceSession:
    """A session for a graph that is checked.

    Args:
        content: of the file.
        device: cpu, cuda or cuda:1, where it runs, with onnxruntime's kernels for CUDA where there are some, otherwise
            on the CPU; None: only to look at its inputs and outputs, so that it is not made fast.
        threads: of the CPU.
        bounded: it takes no more memory than ``PROBE_BYTES``, together with all others that are.

    Raises:
        ValueError: what ``check_graph`` refuses, and what onnxruntime does: other versions, operators it does not know.
        UserError: onnxruntime is not installed.
    """
    check_graph(content)
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(
            f"an ONNX graph needs onnxruntime, which cannot be imported ({error}); `pip install onnxruntime`"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # its errors are raised, too
    options.add_session_config_entry("session.load_model_format", "ONNX")
    if bounded:
        options.add_session_config_entry("session.use_env_allocators", "1")
    if device is None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers: list[str | tuple[str, dict[str, int]]] = ["CPUExecutionProvider"]
    kind, _, index = (device or "cpu").partition(":")
    if kind == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": int(index or 0)}))
    try:
        if bounded:
            _register_bounded_arena()
        session = onnxruntime.InferenceSession(content, options, providers=providers, enable_fallback=0)
        session.disable_fallback()  # either would be told on standard output
        return session
    except Exception as error:  # its own kinds have no base but this
        raise ValueError(f"onnxruntime {onnxruntime.__version__} cannot load it ({reason_of(error)})") from error


@cache
def _register_bounded_arena() -> None:
    """Once for a process: onnxruntime has one for all sessions that want it."""
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(PROBE_BYTES, -1, -1, -1))


@contextmanager
def bounded_run() -> Iterator[RunOptions]:
    """Options of a run that ends with an error after ``PROBE_SECONDS``, and gives its memory back."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def end() -> None:
        options.terminate = True

    timer = threading.Timer(PROBE_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield options
    finally:
        timer.cancel()


def reason_of(error: Exception) -> str:
    """What onnxruntime says, on one line, without its codes and places of its source."""
    text = " ".join(str(error).split())
    if text.startswith(PREFIX):
        text = text.split(" : ", 3)[-1]
    return text if len(text) <= LONGEST else "... " + text[-LONGEST:].partition(" ")[2]


def input_of(session: InferenceSession, *, bins_first: bool | None = None) -> Input:
    """How a graph takes features.

    Args:
        session: of the graph.
        bins_first: where that is known; None: told by which of the two sizes is fixed, bins last where both are or
            none is.

    Raises:
        ValueError: it takes something else.
    """
    floats = [item for item in session.get_inputs() if item.type == "tensor(float)" and len(item.shape) == 3]
    others = [item for item in session.get_inputs() if item not in floats]
    is_length = [item.type == "tensor(int64)" and len(item.shape) == 1 for item in others]
    if len(floats) != 1 or len(others) > 1 or not all(is_length):
        found = ", ".join(f"{item.name!r:.80} {item.type} {item.shape}" for item in session.get_inputs())[:LONGEST]
        raise ValueError(
            f"its inputs are {found or 'none'}; expected float features of three sizes (batch, frames, bins), and "
            "beside them at most int64 numbers of frames, (batch,)"
        )
    batch, second, third = (size if isinstance(size, int) and size > 0 else None for size in floats[0].shape)
    if bins_first is None:
        bins_first = second is not None and third is None
    bins, length = (second, third) if bins_first else (third, second)
    if (batch or 1) * (length or PROBE_FRAMES) * (bins or 1) > MOST_NUMBERS:
        raise ValueError(f"its input has the shape {floats[0].shape}, expected {MOST_NUMBERS} numbers at most")
    return Input(floats[0].name, bins, bins_first, batch, length, others[0].name if others else None)
