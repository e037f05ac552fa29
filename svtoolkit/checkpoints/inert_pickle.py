"""A pickle as plain data: its instructions are followed, but what it names is neither imported nor called.

``torch.load(weights_only=True)`` still takes the sizes of storages on trust, and refuses files that name a class of
pyannote or omegaconf. Here every name is a word: ``pickled_names`` says what becomes of it.
"""

from __future__ import annotations

import codecs
import pickle
import pickletools
from collections.abc import Callable
from functools import partial
from typing import IO, Any, cast

from svtoolkit.checkpoints.pickled_names import Inert, Name, PickleError, known, made, storage_of

LARGEST_PICKLE = 64 << 20
"""Bytes; what pickles a thousand tensors takes some 200 kB."""

MOST_STEPS = 5_000_000
"""Instructions of one pickle."""

codecs.lookup("raw_unicode_escape")  # which pickletools would import in the middle of a file

_MARK = object()

_PUSHED = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
    "MARK": lambda: _MARK,
}


def read_pickle(stream: IO[bytes]) -> Any:
    """The content of one pickle, up to its end; the stream stands behind it.

    Raises:
        PickleError: it is none, names what is not known to be harmless, or does what no pickle of weights does.
    """
    machine, bounded = _Machine(), _Bounded(stream)
    follow, read, tell = machine.followers(), stream.read, stream.tell
    try:
        steps = 0
        while steps <= MOST_STEPS and tell() <= LARGEST_PICKLE:
            steps += 1
            code = read(1)
            if code == pickle.STOP:
                return machine.pop()
            if code not in follow:
                raise ValueError(f"instruction {code!r} unknown" if code else "it is cut off")
            reader, method = follow[code]
            method(None if reader is None else reader(bounded))
    except PickleError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:80] or type(error).__name__
        raise PickleError(f"its pickle is damaged ({reason})") from error
    raise PickleError(f"the pickle is longer than {MOST_STEPS} instructions or {LARGEST_PICKLE} bytes")


class _Bounded:
    """A stream of which no instruction reads more than a pickle may be long, whatever length it says."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        return self.stream.read(min(size, LARGEST_PICKLE))

    def readline(self) -> bytes:
        return self.stream.readline(LARGEST_PICKLE)


class _Machine:
    """Stack and memo; lists of a mark's items are taken off together."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        at = next((i for i in range(len(self.stack) - 1, -1, -1) if self.stack[i] is _MARK), None)
        if at is None:
            raise PickleError("its pickle ends a list that it never began")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def followers(self) -> dict[bytes, tuple[Callable[[Any], Any] | None, Callable[[Any], None]]]:
        """Code of an instruction -> what reads its argument, None where it has none, and what follows it."""
        return {
            opcode.code.encode("latin-1"): (
                None if opcode.arg is None else opcode.arg.reader,
                self._follower(opcode.name),
            )
            for opcode in pickletools.opcodes
        }

    def _follower(self, name: str) -> Callable[[Any], None]:
        if name in _PUSHED:
            return self.stack.append
        if name in _CONSTANTS:
            return lambda _: self.stack.append(_CONSTANTS[name]())
        if name in ("PROTO", "FRAME"):
            return lambda _: None
        method = getattr(self, f"_{name.lower()}", None)
        return partial(_refuse, name) if method is None else cast(Callable[[Any], None], method)

    def _put(self, argument: Any) -> None:
        self.memo[int(argument)] = self.stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _get(self, argument: Any) -> None:
        self.stack.append(self.memo[int(argument)])

    _binget = _long_binget = _get

    def _pop(self, _: Any) -> None:
        self.stack.pop()

    def _pop_mark(self, _: Any) -> None:
        self.pop_to_mark()

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.pop_to_mark()))

    def _last(self, count: int) -> None:
        items = [self.stack.pop() for _ in range(count)]
        self.stack.append(tuple(items[::-1]))

    def _tuple1(self, _: Any) -> None:
        self._last(1)

    def _tuple2(self, _: Any) -> None:
        self._last(2)

    def _tuple3(self, _: Any) -> None:
        self._last(3)

    def _list(self, _: Any) -> None:
        self.stack.append(self.pop_to_mark())

    def _dict(self, _: Any) -> None:
        items = self.pop_to_mark()
        self.stack.append({})
        self._set(items)

    def _append(self, _: Any) -> None:
        self._extend([self.stack.pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self.pop_to_mark())

    _additems = _appends

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)
        elif not isinstance(self.stack[-1], Inert):
            raise PickleError("its pickle appends to what is no list")

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def _setitems(self, _: Any) -> None:
        self._set(self.pop_to_mark())

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Inert):
            return
        if not isinstance(target, dict):
            raise PickleError("its pickle sets items of what is no mapping")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # A key of tuples within tuples could take years to hash.
            target[key if isinstance(key, str | int | float | bytes | None) else repr(type(key))] = value

    def _global(self, argument: str) -> None:
        module, _, attribute = argument.partition(" ")
        self.stack.append(known(Name(module, attribute)))

    def _stack_global(self, _: Any) -> None:
        attribute, module = self.stack.pop(), self.stack.pop()
        if not (isinstance(attribute, str) and isinstance(module, str)):
            raise PickleError("its pickle names something by what is no text")
        self.stack.append(known(Name(module, attribute)))

    def _reduce(self, _: Any) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise PickleError("its pickle calls what is no name")
        self.stack.append(made(function, arguments))

    _newobj = _reduce

    def _build(self, _: Any) -> None:
        self.stack.pop()  # attributes: of a state dict its _metadata, of an Inert what is not looked at

    def _binpersid(self, _: Any) -> None:
        self.stack.append(storage_of(self.stack.pop()))


def _refuse(name: str, _: Any) -> None:
    raise PickleError(f"its pickle has the instruction {name}, which no pickle of weights has")
