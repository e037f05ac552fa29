"""What runs a graph: onnxruntime, OpenVINO or ncnn, by one call; and which of them is the fastest here."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from svtoolkit.checkpoints.exported import EMBEDDING
from svtoolkit.errors import UserError
from svtoolkit.models.onnx_graph import open_session, reason_of
from svtoolkit.runtime.ncnn_engine import Ncnn
from svtoolkit.runtime.openvino_engine import OpenVino

AUTO = "auto"
TRIAL_SECONDS = 3.0
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


class Row(NamedTuple):
    """Of ``ENGINES``.

    Attributes:
        packages: that it needs.
        load: content of a file, threads, streams -> the graph.
    """

    packages: tuple[str, ...]
    load: Callable[[bytes, int, int], Engine]


ENGINES = {
    "onnx": Row(("onnxruntime",), OnnxRuntime),
    "openvino": Row(("openvino",), OpenVino),
    "ncnn": Row(("ncnn", "onnx", "onnxruntime"), Ncnn),
}
"""By the words of ``runtime=``."""


def installed() -> list[str]:
    """Of ``ENGINES`` those whose packages are there."""
    return [name for name, row in ENGINES.items() if all(map(importlib.util.find_spec, row.packages))]


def open_engine(name: str, content: bytes, threads: int, streams: int = 1) -> Engine:
    """Load a graph.

    Raises:
        ValueError, UserError: as the engines; a name that is not known.
    """
    if name not in ENGINES:
        raise UserError(f"runtime is {name!r:.80}, expected {', '.join(ENGINES)} or {AUTO}")
    return ENGINES[name].load(content, threads, streams)


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
            seconds[candidate] = _seconds_of(partial(engine.run, name, example))
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
