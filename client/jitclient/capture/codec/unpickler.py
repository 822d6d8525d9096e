"""How values are read: as data, which calls nothing. `steps/builder.py` runs what it reads.

The opcodes of a peer's pickles are looked at before they are run: others than ours could fill the memory (a memo's
index), or overflow the stack of C (the hash of a tuple that is nested deeply).
"""

import builtins
import io
import pickle
from typing import Any

from .plain import Reduced, Reference, held_in

_WORDS = frozenset({"Ellipsis", "NotImplemented", "complex", "range", "slice"})
"""What plain values are pickled with."""


class Unpickler(pickle.Unpickler):
    """Reads a pickle as data: what it makes stands there as `Reduced`, and objects as `Reference`."""

    def find_class(self, module: str, name: str) -> Any:
        """Of what is named by its module, plain values only."""
        if module != "builtins" or name not in _WORDS:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return getattr(builtins, name)

    def persistent_load(self, pid: Any) -> Any:
        """What `Pickler.persistent_id` stands for."""
        kind = type(pid)
        if kind is int:
            return self.object_at(pid)
        if kind is str:
            return self.maker(pid)
        if kind is list:
            return frozenset(map(from_bytes, pid))
        raise pickle.UnpicklingError(f"it names {pid!r:.80}")

    def object_at(self, number: int) -> Any:
        """What an object that was made before is."""
        return Reference(number)

    def maker(self, name: str) -> Any:
        """What a maker is."""
        return lambda *args: Reduced(name, args)


def from_bytes(data: bytes) -> Any:
    """The inverse of `to_bytes`."""
    return Unpickler(io.BytesIO(data)).load()


def references(value: Any) -> list[int]:
    """The numbers of the objects that a value mentions."""
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


def refuse_others(data: bytes) -> None:
    """Look through a pickle; ValueError if it has opcodes that no value of ours is written with."""
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
            raise ValueError(f"an opcode that is not ours: {opcode:#x}")
    if at != len(data):
        raise ValueError("it is cut off")
