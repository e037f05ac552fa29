"""What operations are counted as: the same for those of a graph that torch makes as for the network's own."""

from __future__ import annotations

import pytest
import torch

from svtoolkit.memory.planner.clock import CONSUMER_GPU, Clock


@pytest.mark.parametrize("training", [True, False])
def test_a_norm_of_a_graph_takes_as_long_as_that_of_the_network(training):
    x, row = torch.randn(16, 4, 40, 50), torch.ones(4)
    with Clock(CONSUMER_GPU) as own:
        torch.ops.aten.native_batch_norm(x, row, row, row.clone(), row.clone(), training, 0.1, 1e-5)
    with Clock(CONSUMER_GPU) as of_graph:
        if training:
            torch.ops.aten._native_batch_norm_legit.no_stats(x, row, row, training, 0.1, 1e-5)
        else:
            torch.ops.aten._native_batch_norm_legit(x, row, row, row, row, training, 0.1, 1e-5)
    times_of_reading_and_writing = own.seconds * CONSUMER_GPU.bytes / (2 * x.nbytes)
    assert times_of_reading_and_writing == pytest.approx(1.5 if training else 1.0, rel=1e-3)
    assert of_graph.seconds == pytest.approx(own.seconds, rel=1e-3)
