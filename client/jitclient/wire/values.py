"""Plain Python values and tree structures as messages.

A value is written by itself where it is plain, as a position in the capture where both sides hold it there, or by
its name where an installed module holds it. Reading never imports a module that is not already in use.
"""

import enum
import importlib
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from jitclient.errors import CaptureError, ProtocolError

Ref = Callable[[Any], int | None]
Deref = Callable[[int], Any]
Rest = Callable[[Any], "Value"]


class _Struct(msgspec.Struct, array_like=True, frozen=True):
    """Base of these messages: fields in order, a number for the class, hashable."""


class Position(_Struct, frozen=True, tag=1):
    """An object that both sides hold in the capture; a negative one is among what a trace made."""

    index: int


class Named(_Struct, frozen=True, tag=2):
    """A thing that an installed module holds."""

    module: str
    name: str


class Sequence(_Struct, frozen=True, tag=3):
    """A tuple, list, set or frozenset."""

    kind: str
    items: "tuple[Value, ...]"


class Mapping(_Struct, frozen=True, tag=4):
    """A dict, in its order."""

    items: "tuple[tuple[Value, Value], ...]"


class Number(_Struct, frozen=True, tag=5):
    """A complex number, an integer beyond 64 bits, or numpy's word for a kind of number."""

    kind: str
    text: str


class Bytes(_Struct, frozen=True, tag=7):
    """A bytes object: a union of messages has room for one kind of string only."""

    data: bytes


class Member(_Struct, frozen=True, tag=8):
    """A member of an enum."""

    kind: "Value"
    name: str


class Node(_Struct, frozen=True, tag=6):
    """An inner node of a tree; a leaf is None. `meta` is what the node keeps beside its children. Where each process
    may have children and `meta` in an order of its own, they stand in the order of the attributes' names.
    """

    kind: "Value"
    meta: "Value"
    children: "tuple[Node | None, ...]"
    child_names: tuple[str, ...] = ()
    meta_names: tuple[str, ...] | None = None


Value = None | bool | int | float | str | Position | Named | Sequence | Mapping | Number | Bytes | Member

_PLAIN = (type(None), bool, float, str)
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
_INT64 = range(-(2**63), 2**63)


def nowhere(_: Any) -> int | None:
    """A `Ref` for where there is no capture."""
    return None


def nothing(index: int) -> Any:
    """A `Deref` for where there is no capture."""
    raise ProtocolError(f"position {index} of a capture, where there is none")


def refuse(value: Any) -> Value:
    """A `Rest` that takes nothing."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise CaptureError(f"{kind} has no form that can be sent: {value!r:.80}")


def encode(value: Any, ref: Ref = nowhere, rest: Rest = refuse) -> Value:
    """The message for a value. `rest` says what stands for one that has no form of its own, or that is changeable.

    Raises:
        CaptureError: it is neither plain, nor in the capture, nor held by an installed module.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return value if value in _INT64 else Number("int", str(value))
    if kind is complex:
        return Number("complex", repr(value))
    if kind is bytes:
        return Bytes(value)
    index = ref(value)
    if index is not None:
        return Position(index)
    if kind in (list, set, dict) and rest is not refuse:
        return rest(value)
    if kind in (tuple, list):
        return Sequence(kind.__name__, tuple(encode(item, ref, rest) for item in value))
    if kind in (set, frozenset):
        items = sorted((encode(item, ref, rest) for item in value), key=msgspec.msgpack.encode)
        return Sequence(kind.__name__, tuple(items))
    if kind is dict:
        return Mapping(tuple((encode(k, ref, rest), encode(v, ref, rest)) for k, v in value.items()))
    return _named(value, ref) or rest(value)


def decode(message: Value, deref: Deref) -> Any:
    """The value of a message.

    Raises:
        ProtocolError: the message names what this process does not hold.
    """
    match message:
        case Position(index):
            return deref(index)
        case Named(module, name):
            return resolve(module, name)
        case Sequence(kind, items):
            if kind not in _SEQUENCES:
                raise ProtocolError(f"no such kind of sequence: {kind!r}")
            return _SEQUENCES[kind](decode(item, deref) for item in items)
        case Mapping(pairs):
            return {decode(k, deref): decode(v, deref) for k, v in pairs}
        case Member(kind, name):
            return decode(kind, deref)[name]
        case Number(kind, text):
            return _number(kind, text)
        case Bytes(data):
            return data
        case plain:
            return plain


def _number(kind: str, text: str) -> Any:
    if kind == "dtype":
        importlib.import_module("ml_dtypes")  # it teaches numpy the names of its types
        return importlib.import_module("numpy").dtype(text)
    return complex(text) if kind == "complex" else int(text)


def is_plain(value: Any) -> bool:
    """Whether a value can be written with no capture and no name, and has no order that another process lacks."""
    kind = type(value)
    if kind in _PLAIN or kind in (int, complex, bytes):
        return True
    if kind in (set, frozenset):
        return len(value) < 2 and all(map(is_plain, value))
    if kind in (tuple, list):
        return all(map(is_plain, value))
    return kind is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


def resolve(module: str, name: str) -> Any:
    """What a module holds under a dotted name. Submodules of packages already in use may be imported, nothing else."""
    holder: Any = sys.modules.get(module)
    if holder is None and module.partition(".")[0] in sys.modules:
        try:
            holder = importlib.import_module(module)
        except ImportError:
            holder = None
    for part in name.split("."):
        holder = getattr(holder, part, None)
    if holder is None:
        raise ProtocolError(f"{module}.{name} is not loaded in this process")
    return holder


def _named(value: Any, ref: Ref) -> Named | Member | Number | None:
    if isinstance(value, enum.Enum):
        return Member(encode(type(value), ref), value.name)
    home = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if isinstance(home, str) and isinstance(name, str) and _held(home, name) is value:
        return Named(home, name)
    home = type(value).__module__  # a constant such as a library's own "missing", of a class beside it
    for name, held in list(vars(sys.modules[home]).items()) if home in sys.modules else ():
        if held is value:
            return Named(home, name)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.dtype):
        return Number("dtype", value.name)
    return None


def _held(module: str, name: str) -> Any:
    holder: Any = sys.modules.get(module)
    for part in name.split("."):
        holder = getattr(holder, part, None)
    return holder
