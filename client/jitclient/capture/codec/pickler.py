"""How values are written: as pickles that never remember what they wrote.

So the bytes depend on values, not on which of them are one object in this process. What has an identity that counts
has a number.
"""

import functools
import io
from typing import Any

import cloudpickle

from .plain import ATOMS, Numbered, Reduced, Reference

VERSION: str = cloudpickle.__version__


class _Maker:
    """Stands for what is called to make something: a pickle has its name, and its reader knows what that means."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        raise NotImplementedError("it is named only")  # pickle wants what it names to be callable


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes plain values, and what stands for others."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.fast = True

    def persistent_id(self, obj: Any) -> Any:
        """An int for an object by its number, a list of the bytes of what a frozenset holds, a str for a maker."""
        kind = type(obj)
        if kind in ATOMS:
            return None
        if kind is Reference:
            return int(obj)
        if issubclass(kind, Numbered):
            return obj.index
        if kind is frozenset:
            return sorted(map(to_bytes, obj))
        return obj.name if kind is _Maker else None

    def reducer_override(self, obj: Any) -> Any:
        """Says of a `Reduced` how it is made; other plain values are cloudpickle's, and all else is a TypeError."""
        if type(obj) is Reduced:
            return _maker(obj.maker), obj.args
        if type(obj) not in _SIMPLE and not (type(obj) is type and obj in _SIMPLE):
            raise TypeError(f"no value is written as a {type(obj).__qualname__}")
        return super().reducer_override(obj)


_SIMPLE = frozenset({complex, range, slice, type(...), type(NotImplemented), _Maker})

_maker = functools.cache(_Maker)


def to_bytes(value: Any) -> bytes:
    """The canonical bytes of a value."""
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()
