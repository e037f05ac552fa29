"""The convolutions of a graph by ncnn, what is before and after them by onnxruntime."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.models.onnx_graph import check_graph, open_session, reason_of
from svtoolkit.runtime.ncnn_graph import divide

SPINS = "GOMP_SPINCOUNT"
"""Variable that says how often a thread of ncnn asks whether there is work before it sleeps."""

FEW = "10000"
"""Some tens of microseconds. As often as by default, where other processes want the cores too, each waits for threads
that cannot go on while it asks: a ResNet34 then took many times as long."""


class Ncnn:
    """By ncnn, on the CPU, in float32.

    Args:
        content: of the file.
        threads: of the CPU.
        streams: runs that may be beside each other, which share the threads.

    Raises:
        ValueError: damage, or convolutions that ncnn cannot have as a whole.
        UserError: ncnn or onnx is missing.
    """

    def __init__(self, content: bytes, threads: int, streams: int = 1) -> None:
        check_graph(content)
        try:
            self._ncnn = _import_ncnn()
            parts = divide(content)
        except ImportError as error:
            raise UserError(
                f"ncnn needs the packages ncnn and onnx, one of which cannot be imported ({error}); "
                "`pip install ncnn onnx onnxruntime`, or take another runtime"
            ) from error
        self._first, self._last, self._exit = parts.first, parts.last, parts.exit
        self._channels = parts.channels
        self._before, self._after = (
            None if part is None else open_session(part, device="cpu") for part in (parts.before, parts.after)
        )
        self._network = self._load(parts.network, parts.weights, max(1, threads // streams))

    def run(self, name: str, values: np.ndarray) -> np.ndarray:
        try:
            maps = values if self._before is None else self._before.run(None, {name: values})[0]
            if maps.ndim != 4 or maps.shape[1] != self._channels:
                raise ValueError(f"its convolutions read {self._channels} maps, found the shape {maps.shape}")
            found = np.stack([self._convolved(each) for each in maps])
            if self._after is None:
                return found
            given = {name: values, self._exit: found}
            wanted = {each.name: given[each.name] for each in self._after.get_inputs()}
            return np.array(self._after.run(None, wanted)[0], dtype=np.float32)
        except Exception as error:  # onnxruntime's own kinds have no base but this
            raise ValueError(reason_of(error)) from error

    def _load(self, network: str, weights: bytes, threads: int) -> Any:
        loaded = self._ncnn.Net()
        options = loaded.opt
        options.num_threads = threads
        for narrow in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
            setattr(options, f"use_{narrow}", False)
        options.use_vulkan_compute = False
        options.use_winograd63_convolution = False  # of larger tiles, which are less exact and here no faster
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "weights.bin")
            path.write_bytes(weights)
            if loaded.load_param_mem(network) != 0 or loaded.load_model(str(path)) != 0:
                raise ValueError(f"ncnn {self._ncnn.__version__} cannot load its convolutions")
        return loaded

    def _convolved(self, maps: np.ndarray) -> np.ndarray:
        """(channels, bins, frames) -> the same of the last convolution."""
        extractor = self._network.create_extractor()
        # a copy of its own: it reads in wide steps from where the memory of numpy may not be aligned
        given = self._ncnn.Mat(np.ascontiguousarray(maps, dtype=np.float32)).clone()
        if extractor.input(self._first, given) != 0:
            raise ValueError("ncnn does not take it")
        status, found = extractor.extract(self._last)
        if status != 0 or not found.w:
            raise ValueError("ncnn cannot run its convolutions on it")
        return np.array(found)


@cache
def _import_ncnn() -> ModuleType:
    """The package, whose threads do not wait for long; it reads the variable when it is loaded.

    Raises:
        ImportError: it is missing.
    """
    given = os.environ.get(SPINS)
    os.environ.setdefault(SPINS, FEW)
    try:
        import ncnn
    finally:
        if given is None:
            del os.environ[SPINS]
    module: ModuleType = ncnn
    return module
