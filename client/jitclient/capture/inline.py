"""Values without identity: how a capture spells them out, and how they are read back.

A spelled value is a tuple whose first item is one of the codes below.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from .format import ATOMS, to_bytes
from .installed import is_user_module

PLAIN = frozenset({*ATOMS, complex, tuple, frozenset, slice, range, type(...), type(NotImplemented)})
"""Types whose values are always spelled out, if what they hold is plain too."""


def spell_constant(value: Any) -> Any:
    """Spell a constant of a code object, or any other value made of plain types only."""
    return spell_plain(value, spell_constant)


def spell_plain(value: Any, inner: Callable[[Any], Any]) -> Any:
    """Spell a value of one of the PLAIN types; `inner` spells what it holds."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is tuple:
        return ("t", *map(inner, value))
    if kind is frozenset:
        return ("f", *sorted(map(inner, value), key=to_bytes))
    if kind is complex:
        return ("c", value.real, value.imag)
    if kind is slice:
        return ("s", inner(value.start), inner(value.stop), inner(value.step))
    if kind is range:
        return ("r", value.start, value.stop, value.step)
    if value is ... or value is NotImplemented:
        return ("k", repr(value))
    raise TypeError(f"{kind.__qualname__} is not plain")


def is_plain(value: Any) -> bool:
    """Whether a value is made of plain types all the way down."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_plain, value))
    return kind in PLAIN and kind is not slice


def read_value(value: Any, objects: Sequence[Any]) -> Any:
    """The object that a value of a step stands for; `objects` are those made so far."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list:
        return [read_value(item, objects) for item in value]
    if kind is not tuple or not value:
        raise ValueError(f"no value is spelled as {kind.__name__}")
    code = value[0]
    if type(code) is int:
        return objects[code]
    return _READERS[code](*(read_value(part, objects) for part in value[1:]))


def installed_attribute(module: str, dotted: str) -> Any:
    """An object of an installed module, by name."""
    return functools.reduce(getattr, dotted.split("."), installed_module(module))


def installed_module(name: str) -> Any:
    """An installed module; a capture has no business with any other."""
    if is_user_module(name):
        raise ImportError(f"{name} is not installed here")
    return importlib.import_module(name)


def _dtype(name: str) -> Any:
    import ml_dtypes
    import numpy

    return numpy.dtype(getattr(ml_dtypes, name, name))


_READERS: dict[str, Callable[..., Any]] = {
    "a": getattr,
    "c": complex,
    "d": _dtype,
    "f": lambda *items: frozenset(items),
    "g": installed_attribute,
    "k": {"Ellipsis": ..., "NotImplemented": NotImplemented}.__getitem__,
    "m": installed_module,
    "r": range,
    "s": slice,
    "t": lambda *items: items,
}
