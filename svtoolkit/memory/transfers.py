"""Copies between a device and the host beside the computation, and who waits for whom."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Transfers(Protocol):
    """A stream of copies beside the one that computes. An event is what ``copy`` returns."""

    def copy(self, source: Tensor, target: Tensor, after: Any) -> Any:
        """Enqueue a copy after all that was asked of the computation so far, and after an event or None.

        Whoever calls keeps source and target until the computation waited for the event that comes back.
        """
        ...

    def wait(self, event: Any) -> None:
        """What the computation is asked for from now on begins after the event."""
        ...


class CudaTransfers:
    """Copies on a stream of their own, one after the other.

    Args:
        device: of the network; the computation is on the stream that is current there now.
    """

    def __init__(self, device: torch.device) -> None:
        self._computation = torch.cuda.current_stream(device)
        self._side = _side_stream(device)

    def copy(self, source: Tensor, target: Tensor, after: Any) -> Any:
        """As the protocol has it; without waiting on the host where the memory there is pinned."""
        self._side.wait_stream(self._computation)
        if after is not None:
            self._side.wait_event(after)
        with torch.cuda.stream(self._side):
            target.copy_(source, non_blocking=True)
        return self._side.record_event()

    def wait(self, event: Any) -> None:
        """As the protocol has it; the host goes on."""
        self._computation.wait_event(event)


def cuda_transfers(device: torch.device) -> Transfers | None:
    """None where there is no memory to be saved."""
    return CudaTransfers(device) if device.type == "cuda" else None


_SIDE_STREAMS: dict[torch.device, Any] = {}


def _side_stream(device: torch.device) -> Any:
    """One a device, whatever network: its copies end in the order in which they were asked for."""
    if device not in _SIDE_STREAMS:
        _SIDE_STREAMS[device] = torch.cuda.Stream(device)
    return _SIDE_STREAMS[device]
