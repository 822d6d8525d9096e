"""The client's half: bytes from a daemon make what `making` can make, and call nothing else.

Whatever is installed can be named as a value; only the functions of `making` are ever called.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from jitclient.capture import Capture
from jitclient.errors import CaptureError, ProtocolError
from jitclient.made import making, places


class Remade:
    """A capture, and what a trace of it made: both by their numbers.

    Args:
        capture: the capture.
        made: what a trace made of it.
        opaque: gives what stands for what only that trace knows.

    Raises:
        CaptureError: this process cannot make it.
    """

    def __init__(self, capture: Capture, made: bytes, opaque: Callable[[int], Any]) -> None:
        self._capture = capture
        try:
            self._values = _Unpickler(io.BytesIO(made), capture, opaque).load() if made else ()
        except CaptureError:
            raise
        except Exception as error:  # these bytes may be anything
            raise CaptureError(f"what the trace made cannot be made here: {type(error).__name__}: {error}") from error

    def object_at(self, index: int) -> Any:
        """The object with that number; IndexError if there is none."""
        return self._values[-1 - index] if index < 0 else self._capture.object_at(index)


_KNOWN: dict[int, Callable[[Any], None]] = pickle._Unpickler.dispatch
_FILLS = (pickle.APPENDS, pickle.SETITEMS, pickle.ADDITEMS)
_HARMLESS = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.LONG4, pickle.BINFLOAT),
    *(pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.BINBYTES8, pickle.BYTEARRAY8),
    *(pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.FROZENSET),
    *(pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET, pickle.STACK_GLOBAL, pickle.BINPERSID),
)
"""What makes plain values, or asks for others: all else is ours or refused."""


def _then_own(opcode: int) -> Callable[[Any], None]:
    """Runs an opcode that makes a container, which may be filled from then on."""

    def run(unpickler: "_Unpickler") -> None:
        _KNOWN[opcode](unpickler)
        unpickler.own[id(unpickler.stack[-1])] = unpickler.stack[-1]

    return run


def _if_own(opcode: int, target: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Runs an opcode that changes its target, if these bytes made that."""

    def run(unpickler: "_Unpickler") -> None:
        unpickler.check_own(target(unpickler))
        _KNOWN[opcode](unpickler)

    return run


class _Unpickler(pickle._Unpickler):
    """In Python, so that what is called or changed is checked here, whatever way led to it."""

    stack: list[Any]
    metastack: list[list[Any]]

    def __init__(self, file: io.BytesIO, capture: Capture, opaque: Callable[[int], Any]) -> None:
        super().__init__(file)
        self._capture = capture
        self._opaque = opaque
        self.own: dict[int, Any] = {}  # what these bytes made, by id
        self._captured: dict[int, Any] = {}  # what of the capture they name

    def persistent_load(self, pid: Any) -> Any:
        if type(pid) is int:
            found = self._capture.made_at(pid)
            self._captured[id(found)] = found
            return found
        if type(pid) is list:
            (number,) = pid
            return self._opaque(number)
        place = places.Place(*pid)
        if place.module is not None:
            return places.code_at(place)
        return places.Placed(*self._capture.code_at(place.owner, place.part))

    def find_class(self, module: str, name: str) -> Any:
        try:
            return making.MAKERS[name]
        except KeyError:
            raise ProtocolError(f"a daemon's bytes name {module}.{name}") from None

    def _make(self) -> None:
        arguments, maker = self.stack.pop(), self.stack.pop()
        if id(maker) not in making.IDS:
            raise ProtocolError(f"a daemon's bytes call a {type(maker).__qualname__}")
        if maker in (making.finish, making.restore):
            self.check_own(arguments[0])
        if maker is making.finish:
            for cell, _ in arguments[1][0]:
                self.check_own(cell)
        elif maker is making.function:
            for cell in arguments[2]:
                if id(cell) not in self._captured:
                    self.check_own(cell)
        made = maker(*arguments)
        if maker in (making.function, making.cell, making.instance):
            self.own[id(made)] = made
        self.stack.append(made)

    def check_own(self, target: Any) -> None:
        if id(target) not in self.own:
            raise ProtocolError(f"a daemon's bytes change a {type(target).__qualname__} that they did not make")

    def _refuse(self) -> None:
        raise ProtocolError("a daemon's bytes use a form of pickle that is not ours")

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **dict.fromkeys(_KNOWN, _refuse),
        **{opcode: _KNOWN[opcode] for opcode in b"".join(_HARMLESS)},
        **{opcode[0]: _then_own(opcode[0]) for opcode in (pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.EMPTY_SET)},
        **{opcode[0]: _if_own(opcode[0], lambda self: self.metastack[-1][-1]) for opcode in _FILLS},
        pickle.APPEND[0]: _if_own(pickle.APPEND[0], lambda self: self.stack[-2]),
        pickle.SETITEM[0]: _if_own(pickle.SETITEM[0], lambda self: self.stack[-3]),
        pickle.REDUCE[0]: _make,
    }
