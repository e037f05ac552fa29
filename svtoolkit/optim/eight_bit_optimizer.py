"""Optimizers whose state takes one byte a value instead of four: what all of them have in common.

The state is decoded chunk by chunk, updated in float32 and coded again; the parameter gets the step of the moment
before it is coded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from svtoolkit.optim.chunks import CHUNK_VALUES, Chunk, Gathered, plan_chunks
from svtoolkit.optim.moments import Moment, load_moment


class EightBitOptimizer(torch.optim.Optimizer):
    """Settings ``block_size`` and ``min_8bit_size`` of a group, the state, and the way of a step.

    The state of a parameter of ``min_8bit_size`` values or more holds, for each moment, ``<moment>_codes``, uint8
    (values,), and ``<moment>_absmax``, float32 (ceil(values / block_size),); that of a smaller one ``<moment>``,
    float32 (values,). The order is that of ``parameter.flatten()`` whatever the memory layout. A gradient that is not
    finite makes its parameter so at once, as without quantisation, and then the block of the moment that it is in.
    """

    counts_steps: ClassVar[bool] = False
    """Whether the state of a parameter holds ``step``, an int: its updates so far."""

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError for a setting of a group that makes no sense."""
        if not settings["lr"] >= 0.0:
            raise ValueError(f"Invalid learning rate: {settings['lr']}")
        if not settings["weight_decay"] >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {settings['weight_decay']}")
        block_size, smallest = settings["block_size"], settings["min_8bit_size"]
        if not isinstance(block_size, int) or not 1 <= block_size <= CHUNK_VALUES:
            raise ValueError(f"Invalid block_size value: {block_size}, expected 1 to {CHUNK_VALUES}")
        if not isinstance(smallest, int) or smallest < 0:
            raise ValueError(f"Invalid min_8bit_size value: {smallest}")

    @abstractmethod
    def moments(self, group: Mapping[str, Any]) -> tuple[Moment, ...]:
        """What is kept of the parameters of a group."""

    @abstractmethod
    def update(
        self, group: Mapping[str, Any], steps: int, parameter: Tensor, gradient: Tensor, moments: list[Tensor]
    ) -> None:
        """Change parameter and moments in place.

        Args:
            group: its settings.
            steps: updates of these parameters, this one included; 0 where the state does not count them.
            parameter: (n,), float32, or float64 where the parameter is.
            gradient: float32 (n,), which may be overwritten.
            moments: float32 (n,) each.
        """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; returns what ``closure`` returns.

        Raises:
            RuntimeError: a gradient is sparse or complex; nothing is changed then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        _refuse_gradients(self.param_groups)
        for group in self.param_groups:
            self.step_of_group(group)
        return loss

    def step_of_group(self, group: Mapping[str, Any]) -> None:
        """Update its parameters, many at a time."""
        for parameters, block_size, steps in self.batches(group):
            lengths = tuple(parameter.numel() for parameter in parameters)
            for chunk in plan_chunks(lengths, block_size or 1):
                self._update_chunk(group, parameters, chunk, block_size, steps)

    def batches(self, group: Mapping[str, Any]) -> Iterator[tuple[list[Tensor], int | None, int]]:
        """Parameters that are updated together: they, their block size (None: float32), number of this update."""
        moments = self.moments(group)
        batches: defaultdict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            block_size, steps = _block_size(parameter, group) if moments else None, 0
            if moments:
                state = self.state[parameter]
                if not state:
                    self._begin(state, moments, parameter, block_size)
                if self.counts_steps:
                    steps = state["step"] = state["step"] + 1
            batches[block_size, steps, parameter.device, parameter.dtype].append(parameter)
        for (block_size, steps, *_), parameters in batches.items():
            yield parameters, block_size, steps

    def _begin(
        self, state: dict[str, Any], moments: tuple[Moment, ...], parameter: Tensor, block_size: int | None
    ) -> None:
        for moment in moments:
            state.update(moment.empty(parameter.numel(), block_size, parameter.device))
        if self.counts_steps:
            state["step"] = 0

    def _update_chunk(
        self, group: Mapping[str, Any], parameters: list[Tensor], chunk: Chunk, block_size: int | None, steps: int
    ) -> None:
        moments = self.moments(group)
        states = [self.state[parameter] for parameter in parameters] if moments else []
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        # A double is stepped in double, though by a step in float32: its own digits must not be lost.
        values = Gathered(chunk.values, parameters, torch.promote_types(parameters[0].dtype, torch.float32))
        gradient = Gathered(chunk.values, gradients, torch.float32).flat
        loaded = [load_moment(moment, chunk, states, block_size) for moment in moments]
        self.update(group, steps, values.flat, gradient, [moment.values for moment in loaded])
        values.scatter()
        del values, gradient  # storing takes memory too
        for moment in loaded:
            moment.store()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; codes stay uint8 and magnitudes float32 whatever the type of the parameter.

        Raises:
            ValueError: it is not of these parameters, or not of this optimizer.
        """
        saved = state_dict["state"]
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        before = self.__getstate__()
        # The rest is torch's business, but it would turn every tensor of the state into the parameter's type.
        super().load_state_dict({**state_dict, "state": {}})
        try:
            for group, replaced in zip(self.param_groups, before["param_groups"], strict=True):
                self._check_group(group, replaced)
            groups = [(parameter, group) for group in self.param_groups for parameter in group["params"]]
            for number, (parameter, group) in zip(numbers, groups, strict=True):
                if number in saved:
                    self._check_state(number, saved[number], parameter, group)
                    self.state[parameter] = {
                        key: value.to(parameter.device, copy=True) if isinstance(value, Tensor) else value
                        for key, value in saved[number].items()
                    }
        except ValueError:
            self.__setstate__(before)
            raise

    def _check_group(self, group: Mapping[str, Any], replaced: Mapping[str, Any]) -> None:
        missing = [key for key in self.defaults if key in replaced and key not in group]
        if missing:
            raise ValueError(
                f"the state is of another optimizer, or of its other backend: its settings lack {', '.join(missing)}"
            )
        self.check(group)

    def _check_state(self, number: int, state: Mapping[str, Any], parameter: Tensor, group: Mapping[str, Any]) -> None:
        expected: dict[str, Any] = {}
        for moment in self.moments(group):
            expected |= moment.layout(parameter.numel(), _block_size(parameter, group))
        found = {key: (value.numel(), value.dtype) for key, value in state.items() if isinstance(value, Tensor)}
        if found != expected or (self.counts_steps and not isinstance(state.get("step"), int)):
            raise ValueError(
                f"the state of parameter {number} holds {_in_words(found)}, expected {_in_words(expected)}: "
                "it is of another network, of another optimizer, or of its other backend"
            )


def _block_size(parameter: Tensor, group: Mapping[str, Any]) -> int | None:
    return group["block_size"] if parameter.numel() >= group["min_8bit_size"] else None


def _refuse_gradients(groups: list[dict[str, Any]]) -> None:
    for group in groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None and (gradient.layout != torch.strided or gradient.is_complex()):
                raise RuntimeError(
                    "8-bit optimizers take no sparse and no complex gradients; use a 32-bit one for them"
                )


def _in_words(layout: Mapping[str, tuple[int, torch.dtype]]) -> str:
    entries = [f"{key} ({length} x {str(dtype).removeprefix('torch.')})" for key, (length, dtype) in layout.items()]
    return ", ".join(entries) or "no tensors"
