"""Values in messages: static arguments, options, tree metadata, exceptions.

A value is written by itself if it is plain, as its number if both sides hold it in a capture, or by name if an
installed module holds it. Reading a value calls nothing that its bytes name, and imports no package that is not in
use.
"""

import contextlib
import enum
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.capture.codec.plain import ATOMS, PLAIN, Reduced, Reference
from jitclient.capture.codec.unpickler import Unpickler, check_opcodes
from jitclient.errors import CaptureError, ProtocolError

Ref = Callable[[Any], int | None]
"""Look-up of an object's number in a capture; None if the capture does not hold the object."""
Deref = Callable[[int], Any]
"""Look-up of the captured object with a number."""
Data = Any
"""Value in its written form: plain values, `Reference`, `Reduced`, and tuples and lists of these."""
Fallback = Callable[[Any], Data]
"""Function that returns the written form of a value without one of its own, or raises."""

SELF_WRITTEN = PLAIN - {tuple, frozenset}
"""Types whose values are their own written form."""
"""Types whose values are their own written form."""


def no_ref(_: Any) -> int | None:
    """Return None: a `Ref` for use without a capture."""
    return None


def no_deref(index: int) -> Any:
    """Raise ProtocolError: a `Deref` for use without a capture."""
    raise ProtocolError(f"index {index} refers to a capture, but there is none")


def no_fallback(value: Any) -> Data:
    """Raise CaptureError: a `Fallback` that accepts no value."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise CaptureError(f"{kind} has no form that can be sent: {value!r:.80}")


def to_bytes(data: Data) -> bytes:
    """Return the bytes of a written form."""
    # Processes that only read values do not need cloudpickle, which this module imports.
    from jitclient.capture.codec import pickler

    return pickler.to_bytes(data)


def encode(value: Any, ref: Ref = no_ref, fallback: Fallback = no_fallback) -> bytes:
    """Return the bytes of a value.

    Args:
        value: any value.
        ref: returns the number of an object that the capture holds, or None.
        fallback: returns the written form of a value that has none of its own, and of a list, set or dict.

    Raises:
        CaptureError: by default, if a value is neither plain, nor in the capture, nor held by an installed module.
    """
    return to_bytes(data_of(value, ref, fallback))


def data_of(value: Any, ref: Ref = no_ref, fallback: Fallback = no_fallback) -> Data:
    """Return the written form of a value; arguments and errors are those of `encode`."""
    kind = type(value)
    if kind in SELF_WRITTEN:
        return value
    index = ref(value)
    if index is not None:
        return Reference(index)
    if kind in (list, set, dict) and fallback is not no_fallback:
        return fallback(value)
    if kind in (tuple, list):
        return kind(data_of(item, ref, fallback) for item in value)
    if kind in (set, frozenset):
        return Reduced(kind.__name__, tuple(sorted((data_of(item, ref, fallback) for item in value), key=to_bytes)))
    if kind is dict:
        return Reduced("dict", tuple((data_of(k, ref, fallback), data_of(v, ref, fallback)) for k, v in value.items()))
    return _named(value, ref) or fallback(value)


def encode_class(cls: type, ref: Ref = no_ref) -> bytes:
    """Return the bytes of a class: its number in a capture, or its name even if no module holds it."""
    index = ref(cls)
    return to_bytes(Reduced("named", (cls.__module__, cls.__qualname__)) if index is None else Reference(index))


def decode(data: bytes, deref: Deref) -> Any:
    """Return the value of such bytes.

    Raises:
        ProtocolError: `encode` did not write the bytes, or they name an object that this process does not hold.
    """
    with limiting_depth():
        return value_of(read(data), deref)


@contextlib.contextmanager
def limiting_depth() -> Iterator[None]:
    """Raise ProtocolError if the block reads a value that is nested too deeply."""
    try:
        yield
    except RecursionError as error:
        raise ProtocolError("a value is nested too deeply") from error


def read(data: bytes) -> Data:
    """Return the written form of a value; raise ProtocolError if `encode` did not write the bytes."""
    try:
        check_opcodes(data)
        return _ValueReader(io.BytesIO(data)).load()
    except Exception as error:
        # The bytes of a peer may raise any exception.
        raise ProtocolError(f"malformed value: {type(error).__name__}: {error}") from error


class _ValueReader(Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        # A frozenset is written as a `Reduced` here, not as a persistent id.
        if type(pid) is list:
            raise ProtocolError("malformed value: a frozenset by persistent id")
        return super().persistent_load(pid)


def value_of(data: Data, deref: Deref) -> Any:
    """Return the value of a written form; errors are those of `decode`."""
    kind = type(data)
    if kind in SELF_WRITTEN:
        return data
    if kind is Reference:
        return deref(int(data))
    if kind in (tuple, list):
        return kind(value_of(part, deref) for part in data)
    if kind is Reduced and data.maker in _MAKERS:
        try:
            return _MAKERS[data.maker](*[value_of(part, deref) for part in data.args])
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"malformed {data.maker}: {error}") from error
    raise ProtocolError(f"malformed value: {data!r:.80}")


def text_of(data: Data) -> str:
    """Return the written form of a value as text for people."""
    if type(data) is Reference or (type(data) is Reduced and data.maker not in ("named", "member", "dtype")):
        return "<object>"
    if type(data) in (tuple, list):
        return "(" + ", ".join(map(text_of, data)) + ")"
    return repr(data) if type(data) is not Reduced else str(data.args[-1])


def name_of(data: bytes) -> str:
    """Return the name by which a value was written; empty if it was written otherwise."""
    found = read(data)
    return str(found.args[1]) if type(found) is Reduced and found.maker == "named" else ""


def is_self_contained(value: Any) -> bool:
    """Return whether a value can be written without a capture or a name and has no process-specific order."""
    kind = type(value)
    if kind in ATOMS or kind is complex:
        return True
    if kind in (set, frozenset):
        return len(value) < 2 and all(map(is_self_contained, value))
    if kind in (tuple, list):
        return all(map(is_self_contained, value))
    return kind is dict and all(is_self_contained(k) and is_self_contained(v) for k, v in value.items())


def resolve(module: str, name: str) -> Any:
    """Return the object at a dotted name in a module; import only submodules of packages already in use."""
    if type(module) is not str or type(name) is not str:
        raise ProtocolError("malformed value: a name is not a string")
    if module not in sys.modules and module.partition(".")[0] in sys.modules:
        # A module may raise any exception at import.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    found = _held(module, name)
    if found is None:
        raise ProtocolError(f"{module}.{name} is not loaded in this process")
    return found


def _member(kind: Any, name: str) -> Any:
    if not isinstance(kind, enum.EnumMeta) or name not in kind.__members__:
        raise ProtocolError(f"{kind!r:.80} has no member {name!r:.80}")
    return kind.__members__[name]


def dtype(name: str) -> Any:
    """Return the numpy dtype with this name."""
    # ml_dtypes imports numpy, which the command line does not load.
    import ml_dtypes
    import numpy

    return numpy.dtype(getattr(ml_dtypes, name, name))


_MAKERS: dict[str, Callable[..., Any]] = {
    "dict": lambda *pairs: dict(pairs),
    "dtype": dtype,
    "frozenset": lambda *items: frozenset(items),
    "member": _member,
    "named": resolve,
    "set": lambda *items: set(items),
}


def _named(value: Any, ref: Ref) -> Reduced | None:
    if isinstance(value, enum.Enum):
        return Reduced("member", (data_of(type(value), ref), value.name))
    home = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if isinstance(home, str) and isinstance(name, str) and _held(home, name) is value:
        return Reduced("named", (home, name))
    # The value may be a constant, such as a library's sentinel, held by the module of its class.
    home = type(value).__module__
    for name, held in dict(vars(sys.modules[home])).items() if home in sys.modules else ():
        if held is value:
            return Reduced("named", (home, name))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.dtype):
        return Reduced("dtype", (value.name,))
    return None


def _held(module: str, name: str) -> Any:
    holder: Any = sys.modules.get(module)
    for part in name.split("."):
        holder = getattr(holder, part, None)
    return holder
