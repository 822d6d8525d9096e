"""Values that cross between the two sides in messages: static arguments, options, metadata of trees, exceptions.

A value is written by itself where it is plain, as its number where both sides hold it in a capture, or by its name
where an installed module holds it. To read one calls nothing that its bytes name, and imports no package that is not
in use.
"""

import contextlib
import enum
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.capture.codec.plain import ATOMS, PLAIN, Reduced, Reference
from jitclient.capture.codec.unpickler import Unpickler, refuse_others
from jitclient.errors import CaptureError, ProtocolError

Ref = Callable[[Any], int | None]
Deref = Callable[[int], Any]
Data = Any
"""A value as it is written: plain values, `Reference` and `Reduced`, and tuples and lists of such."""
Rest = Callable[[Any], Data]

AS_THEY_ARE = PLAIN - {tuple, frozenset}
"""Types whose values are written by themselves."""


def nowhere(_: Any) -> int | None:
    """A `Ref` for where there is no capture."""
    return None


def nothing(index: int) -> Any:
    """A `Deref` for where there is no capture."""
    raise ProtocolError(f"position {index} of a capture, where there is none")


def refuse(value: Any) -> Data:
    """A `Rest` that takes nothing."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise CaptureError(f"{kind} has no form that can be sent: {value!r:.80}")


def to_bytes(data: Data) -> bytes:
    """The bytes of a value as it is written."""
    from jitclient.capture.codec import pickler  # with cloudpickle, which is of no use to who only reads

    return pickler.to_bytes(data)


def encode(value: Any, ref: Ref = nowhere, rest: Rest = refuse) -> bytes:
    """The bytes of a value. `rest` says what stands for one that has no form of its own, or that is changeable.

    By default that is a CaptureError: it is neither plain, nor in the capture, nor held by an installed module.
    """
    return to_bytes(data_of(value, ref, rest))


def data_of(value: Any, ref: Ref = nowhere, rest: Rest = refuse) -> Data:
    """A value as it is written. Takes and raises what `encode` does."""
    kind = type(value)
    if kind in AS_THEY_ARE:
        return value
    index = ref(value)
    if index is not None:
        return Reference(index)
    if kind in (list, set, dict) and rest is not refuse:
        return rest(value)
    if kind in (tuple, list):
        return kind(data_of(item, ref, rest) for item in value)
    if kind in (set, frozenset):
        return Reduced(kind.__name__, tuple(sorted((data_of(item, ref, rest) for item in value), key=to_bytes)))
    if kind is dict:
        return Reduced("dict", tuple((data_of(k, ref, rest), data_of(v, ref, rest)) for k, v in value.items()))
    return _named(value, ref) or rest(value)


def encode_class(cls: type, ref: Ref = nowhere) -> bytes:
    """The bytes of a class, be it held by a module or not."""
    index = ref(cls)
    return to_bytes(Reduced("named", (cls.__module__, cls.__qualname__)) if index is None else Reference(index))


def decode(data: bytes, deref: Deref) -> Any:
    """The value of such bytes; ProtocolError if they are none of ours, or name what this process does not hold."""
    with refusing_depth():
        return value_of(read(data), deref)


@contextlib.contextmanager
def refusing_depth() -> Iterator[None]:
    """Has what is nested more deeply than can be read raise ProtocolError."""
    try:
        yield
    except RecursionError as error:
        raise ProtocolError("a value is nested too deeply") from error


def read(data: bytes) -> Data:
    """The value as it was written; ProtocolError if the bytes are none of ours."""
    try:
        refuse_others(data)
        return _Reader(io.BytesIO(data)).load()
    except Exception as error:  # they may be anything
        raise ProtocolError(f"no value: {type(error).__name__}: {error}") from error


class _Reader(Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        if type(pid) is list:  # a frozenset, which is a `Reduced` here
            raise ProtocolError("a set that is none of ours")
        return super().persistent_load(pid)


def value_of(data: Data, deref: Deref) -> Any:
    """The value that was written so. Raises what `decode` does."""
    kind = type(data)
    if kind in AS_THEY_ARE:
        return data
    if kind is Reference:
        return deref(int(data))
    if kind in (tuple, list):
        return kind(value_of(part, deref) for part in data)
    if kind is Reduced and data.maker in _MAKERS:
        try:
            return _MAKERS[data.maker](*[value_of(part, deref) for part in data.args])
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"no {data.maker}: {error}") from error
    raise ProtocolError(f"no value is written so: {data!r:.80}")


def text_of(data: Data) -> str:
    """A value as it was written, for people."""
    if type(data) is Reference or (type(data) is Reduced and data.maker not in ("named", "member", "dtype")):
        return "<object>"
    if type(data) in (tuple, list):
        return "(" + ", ".join(map(text_of, data)) + ")"
    return repr(data) if type(data) is not Reduced else str(data.args[-1])


def name_of(data: bytes) -> str:
    """The name by which a value was written; empty for one that was written otherwise."""
    found = read(data)
    return str(found.args[1]) if type(found) is Reduced and found.maker == "named" else ""


def is_self_contained(value: Any) -> bool:
    """Whether a value can be written with no capture and no name, and has no order that another process lacks."""
    kind = type(value)
    if kind in ATOMS or kind is complex:
        return True
    if kind in (set, frozenset):
        return len(value) < 2 and all(map(is_self_contained, value))
    if kind in (tuple, list):
        return all(map(is_self_contained, value))
    return kind is dict and all(is_self_contained(k) and is_self_contained(v) for k, v in value.items())


def resolve(module: str, name: str) -> Any:
    """What a module holds under a dotted name. Submodules of packages already in use may be imported, nothing else."""
    if type(module) is not str or type(name) is not str:
        raise ProtocolError("a name is no text")
    if module not in sys.modules and module.partition(".")[0] in sys.modules:
        with contextlib.suppress(Exception):  # what a module raises is its author's
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
    """A dtype of numpy, by name."""
    import ml_dtypes  # with numpy, which the command line can do without
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
    home = type(value).__module__  # a constant such as a library's own "missing", of a class beside it
    for name, held in list(vars(sys.modules[home]).items()) if home in sys.modules else ():
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
