"""What a second evaluation must find as the first one did: random numbers, autocast, BatchNorm statistics."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


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
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def is_consumed(self) -> bool:
        """Whether random numbers were drawn since."""
        now = RandomState(self.device)
        return _content(now.cpu) != _content(self.cpu) or _content(now.cuda) != _content(self.cuda)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Context that draws the same numbers again; afterwards the generators go on where they were."""
        devices = [] if self.cuda is None else [self.device]
        with torch.random.fork_rng(devices):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield


def _content(state: Tensor | None) -> bytes:
    """Bytes of a generator's state (always in main memory), read past any mode that looks at tensor operations."""
    return b"" if state is None else ctypes.string_at(state.data_ptr(), state.numel())


@contextmanager
def untracked_statistics(module: nn.Module) -> Iterator[None]:
    """BatchNorm layers in training mode normalise as ever and leave their running statistics alone.

    Frozen ones (in eval mode) are not touched: they go on using their running statistics.
    """
    layers = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


class ParameterGradients:
    """Sums of gradients for the parameters that are to have one."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._sums: dict[Tensor, Tensor | None] = dict.fromkeys(parameters)

    def wants(self, parameter: Tensor) -> bool:
        return parameter in self._sums

    def add(self, parameter: Tensor, gradient: Tensor | None) -> None:
        """Add a gradient (of any floating type); one that nobody wants is dropped."""
        if gradient is None or parameter not in self._sums:
            return
        gradient = gradient.to(parameter.dtype)
        before = self._sums[parameter]
        self._sums[parameter] = gradient if before is None else before + gradient

    def in_order(self) -> list[Tensor | None]:
        """One sum a parameter, None where there was no gradient."""
        return list(self._sums.values())
