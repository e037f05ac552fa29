"""A context around the forward pass of a network, whoever calls it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn


class _Around:
    """Hooks of one network."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self.make = make
        self._entered: list[AbstractContextManager[object]] = []

    def before(self, module: nn.Module, args: Any) -> None:
        context = self.make()
        context.__enter__()
        self._entered.append(context)

    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        self._entered.pop().__exit__(None, None, None)


def set_forward_context(network: nn.Module, make: Callable[[], AbstractContextManager[object]] | None) -> None:
    """Run a network's forward passes in contexts that ``make`` makes, also those that raise; None: in none."""
    for hooks in (network._forward_pre_hooks, network._forward_hooks):
        ours = [number for number, hook in hooks.items() if isinstance(getattr(hook, "__self__", None), _Around)]
        for number in ours:
            del hooks[number]
            network._forward_hooks_always_called.pop(number, None)
    if make is not None:
        around = _Around(make)
        network.register_forward_pre_hook(around.before)
        network.register_forward_hook(around.after, always_call=True)
