"""Floating-point operations, counted as they are dispatched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry


class Operations(TorchDispatchMode):
    """Context that sums up torch's own counts of operations, of which a multiplication with addition is two.

    FlopCounterMode would need a pass of its own: it hooks into modules and gradients to tell whose an operation is.

    Attributes:
        count: so far.
    """

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        operation = func._overloadpacket
        if operation is torch.ops.aten.convolution_backward:
            self.count += _of_convolution_backward(*args)
        elif operation is torch.ops.aten.mkldnn_rnn_layer:  # as which a CPU runs a layer of an LSTM
            inputs, from_input, from_state = args[:3]
            self.count += 2 * inputs.shape[0] * inputs.shape[1] * (from_input.numel() + from_state.numel())
        elif operation in flop_registry:
            self.count += flop_registry[operation](*args, **(kwargs or {}), out_val=result)
        return result


def _of_convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *rest: Any) -> int:
    """Each of the gradients of input and weight costs what the convolution did; torch's own count of the second knows
    no groups, and takes a depthwise convolution for a whole one.
    """
    *_, wanted = rest
    return sum(wanted[:2]) * conv_flop_count([*inputs.shape], [*weight.shape], [*gradient.shape])
