"""What runs a graph: onnxruntime or OpenVINO, by one call; and which of them is the faster here."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np

from svtoolkit.checkpoints.exported import EMBEDDING
from svtoolkit.errors import UserError
from svtoolkit.models.onnx_graph import check_graph, open_session, reason_of
from svtoolkit.runtime.processor import processor_flags

AUTO = "auto"
TRIAL_SECONDS = 5.0
"""That each runtime may take of the self-test."""


class Engine(Protocol):
    """A graph that is loaded."""

    def run(self, name: str, values: np.ndarray) -> np.ndarray:
        """The embeddings, (batch, embedding_dim) float32, of the one input.

        Raises:
            ValueError: the runtime refuses it; says why.
        """


class OnnxRuntime:
    """By onnxruntime, on the CPU.

    Args:
        content: of the file.
        threads: of the CPU.
        streams: runs that may be beside each other, which share the threads.

    Raises:
        ValueError: damage, or operators that onnxruntime does not have.
        UserError: onnxruntime is missing.
    """

    def __init__(self, content: bytes, threads: int, streams: int = 1) -> None:
        self._session = open_session(content, device="cpu", threads=max(1, threads // streams))

    def run(self, name: str, values: np.ndarray) -> np.ndarray:
        try:
            return np.array(self._session.run([EMBEDDING], {name: values})[0], dtype=np.float32)
        except Exception as error:  # its own kinds have no base but this
            raise ValueError(reason_of(error)) from error


class OpenVino:
    """By OpenVINO, on the CPU; arguments and errors as above.

    Arithmetic is that of the graph, or float32; bfloat16 where the graph takes features, its weights are stored in
    bfloat16, and the processor has tiles for it (AMX). Vector units multiply bfloat16 no faster than float32.

    Args:
        bfloat16: whether to compute in it; None: as above.
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
                bfloat16 = "amx_bf16" in processor_flags() and _is_of_bfloat16(graph)
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


@cache
def _openvino_core() -> Any:
    """One, to the end of the process.

    It has the thread that loads its plug-in handle signals on a stack of its own. Where another thread is the last to
    let go of it, that stack is freed and stays in use: the next signal ends the process, or is written over what
    others have there by then.
    """
    import openvino

    return openvino.Core()


ENGINES: dict[str, tuple[str, Callable[[bytes, int, int], Engine]]] = {
    "onnx": ("onnxruntime", OnnxRuntime),
    "openvino": ("openvino", OpenVino),
}
"""Word of ``runtime=`` -> the package, and what loads a file."""


def installed() -> list[str]:
    """Of ``ENGINES`` those whose package is there."""
    return [name for name, (package, _) in ENGINES.items() if importlib.util.find_spec(package) is not None]


def open_engine(name: str, content: bytes, threads: int, streams: int = 1) -> Engine:
    """Load a graph.

    Raises:
        ValueError, UserError: as the engines; a name that is not known.
    """
    if name not in ENGINES:
        raise UserError(f"runtime is {name!r:.80}, expected {', '.join(ENGINES)} or {AUTO}")
    return ENGINES[name][1](content, threads, streams)


def fastest(
    content: bytes, threads: int, name: str, example: np.ndarray, streams: int = 1
) -> tuple[str, dict[str, float]]:
    """Time the runtimes that are installed on an example, ``TRIAL_SECONDS`` each at most.

    Returns:
        the name of the fastest, and the seconds that a run took with each that could.

    Raises:
        UserError: none of them can.
    """
    seconds: dict[str, float] = {}
    reasons: list[str] = []
    for candidate in installed():
        try:
            engine = open_engine(candidate, content, threads, streams)
            seconds[candidate] = _seconds_of(lambda engine=engine: engine.run(name, example))  # type: ignore[misc]
        except ValueError as error:
            reasons.append(f"{candidate}: {error}")
    if not seconds:
        raise UserError(f"no runtime can run it ({'; '.join(reasons) or 'none is installed'}); export the model again")
    return min(seconds, key=seconds.__getitem__), seconds


def _seconds_of(run: Callable[[], object]) -> float:
    """The least of several runs, after one that warms up."""
    run()
    begin = time.perf_counter()
    times: list[float] = []
    while len(times) < 3 or (len(times) < 20 and time.perf_counter() - begin < TRIAL_SECONDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        if time.perf_counter() - begin >= TRIAL_SECONDS:
            break
    return min(times)
