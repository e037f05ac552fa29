"""Blocks that are divided into parts of the batch, as the planner counts them."""

from __future__ import annotations

import torch

from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.planner.block_costs import BlockCosts, Form
from svtoolkit.memory.planner.clock import CONSUMER_GPU
from svtoolkit.models.blocks import Bottleneck
from svtoolkit.reversible import Leaf

torch.set_num_threads(1)


def test_a_block_in_parts_of_the_batch_is_lean_and_slow():
    form = Form((64, 32, 16, 20), torch.float32)
    with QuickFakeTensorMode():
        found = {
            option.way: option
            for option in BlockCosts(CONSUMER_GPU).of(Bottleneck(32, 8), form).options
            if option.recomputed
        }
    whole, chunks = found["store"], found["chunks"]
    assert chunks.part(3) == Leaf(3, "chunks")
    assert chunks.backward < whole.backward / 2
    assert chunks.seconds > 1.5 * whole.seconds
    assert chunks.holds_input
    assert chunks.kept < form.bytes / 100
