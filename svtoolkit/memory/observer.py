"""Modes that look at operations and leave them as they are: beside fake tensors at a fraction of the time of others."""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from typing_extensions import Self

from svtoolkit.memory.fake_tensors import QuickFakeTensorMode


class Observer(TorchDispatchMode):
    """Context in which every operation is shown to ``see``, those of backward passes among them.

    Where QuickFakeTensorMode is the innermost mode, it shows them itself: an operation need not be dispatched once more
    for each that looks at it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entered: list[QuickFakeTensorMode | None] = []

    def see(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, form: Hashable) -> None:
        """An operation that has been done.

        Args:
            form: equal for operations of equal arguments but for what the tensors contain; None: it is not known.
        """
        raise NotImplementedError

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to say so of every operation takes time

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.see(func, args, kwargs, result, None)
        return result

    def __enter__(self) -> Self:
        innermost = _get_current_dispatch_mode()
        if isinstance(innermost, QuickFakeTensorMode):
            self._entered.append(innermost)
            innermost.observers.append(self)
        else:
            self._entered.append(None)
            super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mode = self._entered.pop()
        if mode is None:
            super().__exit__(kind, error, trace)
        else:
            mode.observers.remove(self)
