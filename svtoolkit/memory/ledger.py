"""Live tensor storage, operation by operation: what is allocated, and when it is given back."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from svtoolkit.memory.fake_tensors import DEVICE
from svtoolkit.memory.observer import Observer


class Change(NamedTuple):
    """One storage has so many bytes more (allocated, grown) or less (shrunk, freed)."""

    storage: int
    difference: int


class _Entry(NamedTuple):
    storage: int
    size: int
    reference: weakref.ref[torch.UntypedStorage]


_DENSE = {Tensor, nn.Parameter, FakeTensor}
"""Types of tensors that are no wrappers."""


class MemoryLedger(Observer):
    """Counts the bytes of every tensor storage on one kind of device while it is entered.

    A storage is counted once, whatever views there are of it, from the operation that first takes or returns it until
    it is freed or resized; freed means that neither Python nor the autograd graph holds it any more. Backward passes
    are seen too: autograd's threads run under the dispatch modes of the thread that called backward
    (ATen/ThreadLocalState.h). Under FakeTensorMode the sizes are those of the tensors that are not there.

    Not seen, since it is no tensor: what a kernel needs while it runs (cuDNN's workspace), the context of a device,
    the gaps of an allocator. Tensors are dense, or wrappers of dense ones.

    Args:
        device: kind of device whose tensors count (cpu, cuda); those of FakeTensorMode are where they claim to be.

    Attributes:
        changes: all that happened, in order; storages are numbered from 0 as they appear.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.device = device
        self.changes: list[Change] = []
        self._entries: dict[int, _Entry] = {}  # by id: torch keeps a storage's Python object as long as the storage
        self._appeared = 0
        self._resizes: list[AbstractContextManager[None]] = []
        self._lock = threading.RLock()  # a storage may die in one of autograd's threads

    def count(self, tensors: Iterable[Tensor]) -> set[int]:
        """Count tensors that are there already; returns the numbers of their storages."""
        return {self._count(storage) for tensor in tensors for storage in self._storages(tensor)}

    def live(self) -> dict[int, int]:
        """Number -> bytes of every storage that is there now."""
        with self._lock:
            return {entry.storage: entry.size for entry in self._entries.values()}

    def peak(self) -> int:
        """Bytes of all storages together, when they were most."""
        with self._lock:
            return max(itertools.accumulate((change.difference for change in self.changes), initial=0))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE and type(args[0]) is FakeTensor:  # asked for as often as all operations together
            return args[0].fake_device
        self._look_at(args)  # what no operation has made: storage that was there before
        return super().__torch_dispatch__(func, types, args, kwargs)

    def see(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, form: Hashable) -> None:
        self._look_at(args)
        if kwargs:
            self._look_at(kwargs.values())
        self._look_at((result,))  # what is written to or resized in place is returned, too

    def __enter__(self) -> MemoryLedger:
        resizes = _resizes_reported_to(self)
        resizes.__enter__()
        self._resizes.append(resizes)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._resizes.pop().__exit__(None, None, None)

    def _look_at(self, values: Iterable[Any]) -> None:
        """Count an operation's arguments or results, which nest in lists and tuples alone."""
        for value in values:
            if isinstance(value, Tensor):
                if type(value) in _DENSE:  # of most the storage is known, which is seen at a fraction of the time
                    storage = value.untyped_storage()
                    entry = self._entries.get(id(storage))
                    if entry is not None and entry.size == storage.nbytes():
                        continue
                self.count((value,))
            elif isinstance(value, (list, tuple)):
                self._look_at(value)

    def _storages(self, tensor: Tensor) -> Iterator[torch.UntypedStorage]:
        if type(tensor) is FakeTensor:  # whose device is an operation to ask for
            if tensor.fake_device.type == self.device:
                yield tensor.untyped_storage()
        elif is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                yield from self._storages(getattr(tensor, name))
        elif tensor.device.type == self.device:
            yield tensor.untyped_storage()

    def _count(self, storage: torch.UntypedStorage) -> int:
        key = id(storage)
        with self._lock:
            size = storage.nbytes()
            before = self._entries.get(key)
            if before is None:
                number = self._appeared
                self._appeared += 1
                reference = weakref.ref(storage, lambda _: self._freed(key))
            elif before.size == size:
                return before.storage
            else:
                number, reference = before.storage, before.reference
            self._entries[key] = _Entry(number, size, reference)
            self.changes.append(Change(number, size - (before.size if before else 0)))
        return number

    def _freed(self, key: int) -> None:
        with self._lock:
            entry = self._entries.pop(key)
            self.changes.append(Change(entry.storage, -entry.size))


@contextmanager
def _resizes_reported_to(ledger: MemoryLedger) -> Iterator[None]:
    """A resize of a storage itself is no operation, so that nothing is dispatched: it is told to the ledger here."""
    before = vars(torch.UntypedStorage).get("resize_")
    resize = torch.UntypedStorage.resize_

    def resize_and_tell(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        if id(storage) in ledger._entries:
            ledger._count(storage)
        return result

    torch.UntypedStorage.resize_ = resize_and_tell  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        if before is None:
            del torch.UntypedStorage.resize_
        else:
            torch.UntypedStorage.resize_ = before  # type: ignore[method-assign]
