"""A graph by OpenVINO."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.models.onnx_graph import check_graph, reason_of
from svtoolkit.runtime.processor import processor_flags

TRIED = (64, 20, 100)
"""Channels, bins and frames of the convolution that arithmetic is timed on."""


class OpenVino:
    """By OpenVINO, on the CPU.

    Arithmetic is that of the graph, or float32; bfloat16 where the graph takes features, its weights are stored in
    bfloat16, and the processor multiplies faster in it.

    Args:
        content: of the file.
        threads: of the CPU.
        streams: runs that may be beside each other, which share the threads.
        bfloat16: whether to compute in it; None: as above.

    Raises:
        ValueError: damage, or operators that OpenVINO does not have.
        UserError: OpenVINO is missing.
    """

    def __init__(self, content: bytes, threads: int, streams: int = 1, *, bfloat16: bool | None = None) -> None:
        check_graph(content)
        try:
            import openvino
        except ImportError as error:
            raise UserError(
                f"OpenVINO cannot be imported ({error}); `pip install openvino`, or take another runtime"
            ) from error
        core = _openvino_core()
        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": streams, "PERFORMANCE_HINT": "LATENCY"}
        try:
            graph = core.read_model(content)
            if bfloat16 is None:
                bfloat16 = _is_of_bfloat16(graph) and bfloat16_is_faster()
            # where nothing is said it computes in bfloat16 by itself, whatever the graph, if the processor has it
            settings["INFERENCE_PRECISION_HINT"] = "bf16" if bfloat16 else "f32"
            self._model = core.compile_model(graph, "CPU", settings)
        except Exception as error:  # its own kinds have no base but this
            raise ValueError(f"OpenVINO {openvino.__version__} cannot load it ({reason_of(error)})") from error
        self._of_thread = threading.local()

    def run(self, name: str, values: np.ndarray) -> np.ndarray:
        try:
            if not hasattr(self._of_thread, "request"):
                self._of_thread.request = self._model.create_infer_request()
            found = self._of_thread.request.infer({name: values}, share_inputs=True, share_outputs=True)
        except Exception as error:  # as above
            raise ValueError(reason_of(error)) from error
        return np.array(next(iter(found.values())), dtype=np.float32)  # a copy: the next run writes over what is shared


def _is_of_bfloat16(graph: Any) -> bool:
    """Whether it takes features and its weights are stored in bfloat16; spectra of waveforms need more digits."""
    constants = [each for each in graph.get_ops() if each.get_type_name() == "Constant"]
    return len(graph.input(0).partial_shape) == 3 and any(
        each.get_element_type().get_type_name() == "bf16" for each in constants
    )


def bfloat16_is_faster() -> bool:
    """Whether convolutions take less time in bfloat16 than in float32 on this processor.

    With tiles (AMX) they do. With vectors alone (AVX512-BF16) it depends on how many of them the processor multiplies
    at once: half of the time on a Zen 5, twice the time on a Zen 4. So one is timed.
    """
    flags = processor_flags()
    return "amx_bf16" in flags or ("avx512_bf16" in flags and _convolution_is_faster())


@cache
def _convolution_is_faster() -> bool:
    seconds = {}
    for precision in ("f32", "bf16"):
        run = _convolution(precision)
        run()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        seconds[precision] = min(times)
    return seconds["bf16"] < 0.8 * seconds["f32"]


def _convolution(precision: str) -> Any:
    """A call that runs a 3x3 convolution on one thread."""
    from openvino import Model, opset8

    channels, bins, frames = TRIED
    maps = opset8.parameter([1, channels, bins, frames], np.float32)
    kernel = opset8.constant(np.full((channels, channels, 3, 3), 0.01, np.float32))
    result = opset8.relu(opset8.convolution(maps, kernel, [1, 1], [1, 1], [1, 1], [1, 1]))
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": precision}
    request = _openvino_core().compile_model(Model([result], [maps]), "CPU", settings).create_infer_request()
    given = np.ones((1, channels, bins, frames), np.float32)
    return lambda: request.infer([given])


@cache
def _openvino_core() -> Any:
    """One, to the end of the process.

    It has the thread that loads its plug-in handle signals on a stack of its own. Where another thread is the last to
    let go of it, that stack is freed and stays in use: the next signal ends the process, or is written over what
    others have there by then.
    """
    import openvino

    return openvino.Core()
