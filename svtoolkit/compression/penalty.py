"""The penalty of stage one: (strength / 2) (|U|^2 + |V|^2), which is strength times the trace norm of U V at its least.

Kliegl et al., "Trace norm regularization and faster inference for embedded speech recognition RNNs" (2017), eq. 5 and
lemma 1.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class Penalty:
    """(strength / 2) times the sum of squares of some parameters.

    Its gradient is added to theirs before clipping and update, as if it stood in the loss, once a step whatever the
    number of micro-batches and processes. The optimizer's own decay must leave these parameters out.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], strength: float) -> None:
        self.parameters = list(parameters)
        self.strength = strength

    @torch.no_grad()
    def add_gradient(self) -> None:
        """To parameters that have a gradient."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.add_(parameter, alpha=self.strength)
