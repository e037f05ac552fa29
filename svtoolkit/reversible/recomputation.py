"""State that a second evaluation must find as the first one did: random numbers, autocast, BatchNorm statistics."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase


def autocast_is_on(device: torch.device) -> bool:
    """Whether operations on a device choose their own precision now."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


@dataclass(frozen=True)
class AutocastState:
    """Autocast as it was, for one device type.

    The cache of cast weights is off in both evaluations: casts made without gradient must not be found by code that
    needs one.
    """

    device_type: str
    dtype: torch.dtype | None
    """None: off."""

    @staticmethod
    def capture(device: torch.device) -> AutocastState:
        return AutocastState(device.type, torch.get_autocast_dtype(device.type) if autocast_is_on(device) else None)

    def restored(self) -> AbstractContextManager[object]:
        """Context in which autocast is as captured."""
        if not torch.amp.is_autocast_available(self.device_type):
            return nullcontext()
        is_on = self.dtype is not None
        return torch.autocast(self.device_type, dtype=self.dtype, enabled=is_on, cache_enabled=False)


class RandomState:
    """State of the CPU's generator and of the device's own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.device_state = _device_state(device)

    def is_consumed(self) -> bool:
        """Whether random numbers were drawn since."""
        now = RandomState(self.device)
        return _content(now.cpu) != _content(self.cpu) or _content(now.device_state) != _content(self.device_state)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Context that draws the same numbers again; afterwards the generators continue where they were."""
        now = RandomState(self.device)
        self._set()
        try:
            yield
        finally:
            now._set()

    def _set(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.device_state is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(self.device_state, self.device)
        elif self.device_state is not None:
            torch.mps.set_rng_state(self.device_state)


def _device_state(device: torch.device) -> Tensor | None:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    if device.type == "mps" and torch.backends.mps.is_available():  # not in a prediction
        return torch.mps.get_rng_state()
    return None


def _content(state: Tensor | None) -> bytes:
    """Bytes of a generator's state (always in main memory), read past any mode that looks at tensor operations."""
    return b"" if state is None else ctypes.string_at(state.data_ptr(), state.numel())


@contextmanager
def untracked_statistics(module: nn.Module) -> Iterator[None]:
    """BatchNorm and InstanceNorm layers in training mode normalise as ever and leave their running statistics alone.

    Frozen ones (in eval mode) are not touched: they go on using their running statistics.
    """
    layers = [m for m in module.modules() if isinstance(m, _NormBase) and m.training and m.track_running_stats]
    statistics = [(layer.running_mean, layer.running_var) for layer in layers]
    for layer in layers:
        layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    try:
        yield
    finally:
        for layer, (mean, variance) in zip(layers, statistics, strict=True):
            layer.track_running_stats, layer.running_mean, layer.running_var = True, mean, variance


class ModuleState:
    """Weights and modes of modules, which a second evaluation relies on."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.modules = nn.ModuleList(modules)
        self.parameters = list(self.modules.parameters())
        self._weights, self._modes = self._read()

    def _read(self) -> tuple[list[tuple[int, int]], list[bool]]:
        weights = [(id(parameter), parameter._version) for parameter in self.modules.parameters()]
        return weights, [module.training for module in self.modules.modules()]

    def check(self) -> None:
        """Raise RuntimeError where a weight or a mode is not what it was."""
        weights, modes = self._read()
        if weights != self._weights:
            raise RuntimeError(
                "a weight of a recomputed chain was modified or replaced before its gradient was computed; "
                "call backward first"
            )
        if modes != self._modes:
            raise RuntimeError(
                "a recomputed chain went from training to evaluation mode, or back, before its gradient was computed; "
                "call backward first"
            )


def graph_is_kept() -> bool:
    """Whether this backward pass was asked to keep the graph; torch frees by default, and so do we."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


class ParameterGradients:
    """Sums of gradients for the parameters that need one."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._sums: dict[Tensor, Tensor | None] = dict.fromkeys(parameters)

    def wants(self, parameter: Tensor) -> bool:
        return parameter in self._sums

    def add(self, parameter: Tensor, gradient: Tensor | None) -> None:
        """Add a gradient (of any floating type); one that is not needed is dropped."""
        if gradient is None or parameter not in self._sums:
            return
        gradient = gradient.to(parameter.dtype)
        before = self._sums[parameter]
        self._sums[parameter] = gradient if before is None else before + gradient

    def in_order(self) -> list[Tensor | None]:
        """One sum a parameter, None where there was no gradient."""
        return list(self._sums.values())
