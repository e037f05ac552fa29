"""The ledger against torch's own MemTracker: the peak of whole training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.memory import apply_strategy
from svtoolkit.memory.measurement import measure_step
from svtoolkit.memory.step_report import BACKWARD, OPTIMIZER, MemoryReport
from svtoolkit.models import build_model

torch.set_num_threads(1)

CASES = [
    ("resnet10", "store", torch.optim.SGD, 8, 200),
    ("resnet10", "store", torch.optim.AdamW, 1, 40),  # the peak is in the update
    ("revnet_tiny", "reversible", torch.optim.SGD, 8, 200),
]


@pytest.fixture(autouse=True)
def storages_as_they_were() -> Iterator[None]:
    """MemTracker leaves torch's storages with a method of their own for the one that they inherit."""
    before = "resize_" in vars(torch.UntypedStorage)
    yield
    if not before and "resize_" in vars(torch.UntypedStorage):
        del torch.UntypedStorage.resize_


class Step:
    """Forward, backward and update of a network; made anew for each count, so that both begin with the same."""

    def __init__(self, name: str, strategy: str, optimizer: Callable[..., torch.optim.Optimizer], x: Tensor) -> None:
        self.network = build_model(name, num_bins=24, embedding_dim=16).train()
        apply_strategy(self.network, strategy)
        self.optimizer = optimizer(self.network.parameters(), lr=0.1, foreach=False)
        self.x = x

    def loss(self) -> Tensor:
        return self.network(self.x).square().sum()

    def tracked_peak(self) -> int:
        """By MemTracker, of a second step."""
        from torch.distributed._tools.mem_tracker import MemTracker  # slow to import

        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        tracker = MemTracker()
        tracker.track_external(self.network, self.optimizer, self.x)
        with tracker:
            self.loss().backward()
            self.optimizer.step()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]

    def counted(self) -> MemoryReport:
        """By the ledger, of a second step."""
        return measure_step([self.network], self.loss, inputs=[self.x], optimizer=self.optimizer)


@pytest.mark.parametrize(("name", "strategy", "optimizer", "batch", "frames"), CASES)
def test_the_peak_is_that_of_mem_tracker_to_the_byte(name, strategy, optimizer, batch, frames):
    """On fake tensors, of which both see the same."""
    with FakeTensorMode():
        x = torch.randn(batch, frames, 24)
        tracked = Step(name, strategy, optimizer, x).tracked_peak()
        report = Step(name, strategy, optimizer, x).counted()
    assert report.peak_bytes == tracked
    assert report.peak_phase == (OPTIMIZER if optimizer is torch.optim.AdamW else BACKWARD)
