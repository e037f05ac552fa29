"""A ResNet whose blocks run reversibly at full width: what `svt reverse` makes of a trained one, with its weights.

A block of a ResNet is y = relu(x + F(x)), and the ReLU behind the addition loses what it cuts off. It is written as a
sum that ends with nothing, y = x + (relu(x + F(x)) - x), which is the same function, and what is added is a residual
function as any other. Blocks of one shape, one after the other, then run with momentum (``MomentumSequence``): the
first as before, the others less a little of the change before theirs. Blocks that change the shape, and those of
stages that have too few others, are the ordinary ones, recomputed from their inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from svtoolkit.models.blocks import BasicBlock, Bottleneck
from svtoolkit.models.recomputed_blocks import RecomputedBasicBlock, RecomputedBottleneck, RecomputedResidual
from svtoolkit.models.resnet import BlockSize, assemble_resnet
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import PACKED_BITS, Chain, MomentumSequence
from svtoolkit.reversible.manual_backward import Request, recompute_backward
from svtoolkit.reversible.manual_layers import NormRelu, has_hooks, norm_gradient
from svtoolkit.reversible.parts import parts
from svtoolkit.reversible.recomputation import untracked_statistics

FEWEST_BLOCKS = 3
"""Blocks of one shape that run with momentum: of fewer, the inputs are no more than x and v are."""


class _Change(RecomputedResidual):
    """What a block of a ResNet changes, ``scale`` times: relu(x + F(x)) - x; its weights are those of the block.

    Attributes:
        scale: 1 - momentum, so that what is added up over a stage stays as much; 1 in the first.
    """

    scale: float = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, bins, frames) -> the same shape."""
        x = x.view_as(x)  # autograd then adds up the gradients of its uses here, before that of the sum outside
        value = x
        for position, (conv, norm) in enumerate(self._layers()):
            value = norm(conv(F.relu(value) if position else value))
        return (F.relu(value + x) - x) * self.scale

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor:
        """Keeps the inputs of the norms and where the ReLU at the end was zero."""
        inputs = self._inputs_of_norms(x)
        last = NormRelu(self._layers()[-1][1], inputs.pop(), relu=False)
        value = last.take()
        dtype = value.dtype
        value = value.add_(x) if dtype == x.dtype else value + x
        dead = value <= 0
        if request.value_hook is not None:
            request.value_hook(value.relu_().sub_(x).mul_(self.scale))
        del value
        upstream = grad_output.mul(self.scale).masked_fill_(dead, 0).to(dtype)
        inputs.append(norm_gradient(last, upstream, request.gradients))
        del last, upstream
        dx = self._input_gradient(x, inputs, request.gradients)
        for part, gradient, passed in zip(*(parts(whole) for whole in (dx, grad_output, ~dead)), strict=True):
            part.sub_(gradient.mul(self.scale).masked_fill_(passed, 0))
        return dx


class BasicChange(_Change, BasicBlock):
    """Of a basic block."""


class BottleneckChange(_Change, Bottleneck):
    """Of a bottleneck block."""


CLASSES: dict[str, tuple[type[RecomputedBasicBlock | RecomputedBottleneck], type[BasicChange | BottleneckChange]]] = {
    "basic": (RecomputedBasicBlock, BasicChange),
    "bottleneck": (RecomputedBottleneck, BottleneckChange),
}
"""Kind of block -> the ordinary one, and what one that runs with momentum changes."""


class RecomputedRun(nn.Sequential):
    """A few modules one after the other, of which the input of the first is kept and nothing else.

    The input of each is found from there by itself, so that no two of them are there at once.
    """

    def is_as_built(self) -> bool:
        return not has_hooks(self)

    def recompute_backward(self, x: Tensor, grad_output: Tensor, request: Request) -> Tensor | None:
        """From the last module to the first."""
        upstream = grad_output
        for position in reversed(range(len(self))):
            value = x
            with untracked_statistics(self):
                for module in list(self)[:position]:
                    value = module(value)
            wanted = request.needs_input or position > 0
            found = recompute_backward(self[position], value, upstream, request.gradients, needs_input=wanted)
            del value
            if found is None:
                return None
            if position == len(self) - 1 and found.untyped_storage()._cdata != grad_output.untyped_storage()._cdata:
                grad_output.data = grad_output.new_empty(0)  # the caller holds the tensor until the end
            upstream = found
            del found
        return upstream


def build_reversed_resnet(
    *,
    num_bins: int,
    embedding_dim: int,
    block: str,
    blocks: tuple[int, int, int, int],
    remainder_bits: int = 4,
    width: int = 32,
    stem_stride: tuple[int, int] = (1, 1),
    base_width: int | None = None,
    embedding_layers: int = 1,
    pooling_eps: float = 1e-7,
) -> ChainNetwork:
    """A ResNet with fresh weights whose longer stages run with momentum.

    Args:
        num_bins, embedding_dim, block, blocks, width, stem_stride, base_width, embedding_layers, pooling_eps: as of
            ``build_resnet``.
        remainder_bits: bits of ``MomentumSequence``; with 8, the function is that of the ResNet nearly.

    Raises:
        ValueError: as ``build_resnet``; bits that do not fill bytes; no stage that is long enough.
    """
    if remainder_bits not in PACKED_BITS:
        raise ValueError(f"remainder_bits is {remainder_bits}, expected one of {', '.join(map(str, PACKED_BITS))}")
    if not any(is_long_enough(block, count, index) for index, count in enumerate(blocks)):
        raise ValueError(f"no stage has {FEWEST_BLOCKS} blocks of one shape or more, which can be reversed")
    ordinary, change = CLASSES[block]

    def make_stage(index: int, sizes: Sequence[BlockSize]) -> Chain:
        first = _first_alike(block, index)
        if not is_long_enough(block, len(sizes), index):
            stage = [ordinary(*size) for size in sizes]
            return Chain(RecomputedRun(*stage)) if index == 0 else Chain(*stage)
        changes = [change(*size) for size in sizes[first:]]
        sequence = MomentumSequence(changes, remainder_bits)
        for function in changes[1:]:
            function.scale = 1.0 - sequence.momentum
        return Chain(*(ordinary(*size) for size in sizes[:first]), sequence)

    network = assemble_resnet(
        make_stage,
        num_bins=num_bins,
        embedding_dim=embedding_dim,
        block=block,
        blocks=blocks,
        width=width,
        stem_stride=stem_stride,
        base_width=base_width,
        embedding_layers=embedding_layers,
        pooling_eps=pooling_eps,
    )
    network.stem = Chain(network.stem)
    first, second = list(network.stages)[:2]
    assert isinstance(first, Chain)
    assert isinstance(second, Chain)
    if isinstance(run := first[0], RecomputedRun):
        # The input of the first block that narrows the map is the largest of all, which need not be kept, either.
        run.append(second[0])
        del second[0]
    return network


def is_long_enough(block: str, count: int, index: int) -> bool:
    """Whether the stage of this index, of so many blocks, runs with momentum."""
    return count - _first_alike(block, index) >= FEWEST_BLOCKS


def _first_alike(block: str, index: int) -> int:
    """Position of the first block that keeps the shape: all do in a first stage of basic blocks."""
    return 0 if block == "basic" and index == 0 else 1
