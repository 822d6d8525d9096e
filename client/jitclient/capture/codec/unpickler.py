"""Reader of values as data: it calls nothing. `steps/builder.py` subclasses it to run a capture's program.

`check_opcodes` checks the opcodes of a peer's pickle before it is read. Other opcodes could fill the memory (a memo
index) or overflow the C stack (the hash of a deeply nested tuple).
"""

import builtins
import io
import pickle
from typing import Any

from .plain import Reduced, Reference, held_in

_BUILTIN_NAMES = frozenset({"Ellipsis", "NotImplemented", "complex", "range", "slice"})
"""Builtins in the pickles of plain values."""


class Unpickler(pickle.Unpickler):
    """Unpickler that yields data: made values become `Reduced`, numbered objects become `Reference`."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a builtin that plain values need; raise UnpicklingError for any other name."""
        if module != "builtins" or name not in _BUILTIN_NAMES:
            raise pickle.UnpicklingError(f"unexpected name {module}.{name}")
        return getattr(builtins, name)

    def persistent_load(self, pid: Any) -> Any:
        """Return the value for a persistent id of `Pickler`."""
        kind = type(pid)
        if kind is int:
            return self.object_at(pid)
        if kind is str:
            return self.maker(pid)
        if kind is list:
            return frozenset(map(from_bytes, pid))
        raise pickle.UnpicklingError(f"unexpected persistent id {pid!r:.80}")

    def object_at(self, number: int) -> Any:
        """Return the stand-in for the object with this number; subclasses may return the object."""
        return Reference(number)

    def maker(self, name: str) -> Any:
        """Return the function that the pickle calls for a maker; subclasses may return the real maker."""
        return lambda *args: Reduced(name, args)


def from_bytes(data: bytes) -> Any:
    """Return the value of such bytes (the inverse of `to_bytes`)."""
    return Unpickler(io.BytesIO(data)).load()


def references(value: Any) -> list[int]:
    """Return the numbers of the objects that a value mentions."""
    return [int(found) for found in held_in(value, Reference)]


_WITHOUT = b"".join(
    (
        *(pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
        *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
        *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.BINPERSID, pickle.REDUCE, pickle.STACK_GLOBAL),
    )
)
_FIXED = {
    **dict.fromkeys(_WITHOUT, 0),
    **{pickle.PROTO[0]: 1, pickle.FRAME[0]: 8, pickle.BINFLOAT[0]: 8},
    **{pickle.BININT1[0]: 1, pickle.BININT2[0]: 2, pickle.BININT[0]: 4},
}
_COUNTED = {
    **{pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8},
    **{pickle.SHORT_BINBYTES[0]: 1, pickle.BINBYTES[0]: 4, pickle.BINBYTES8[0]: 8},
    **{pickle.LONG1[0]: 1, pickle.LONG4[0]: 4},
}


def check_opcodes(data: bytes) -> None:
    """Check that a pickle has only the opcodes that `Pickler` writes.

    Raises:
        ValueError: the pickle has another opcode, or is cut off.
    """
    at = 0
    while at < len(data):
        opcode = data[at]
        at += 1
        fixed = _FIXED.get(opcode)
        if fixed is not None:
            at += fixed
        elif opcode in _COUNTED:
            start, at = at, at + _COUNTED[opcode]
            at += int.from_bytes(data[start:at], "little")
        else:
            raise ValueError(f"unexpected opcode {opcode:#x}")
    if at != len(data):
        raise ValueError("the pickle is truncated")
