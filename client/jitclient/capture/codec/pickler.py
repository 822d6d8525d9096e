"""Writer of values: pickles without a memo.

The bytes depend only on values, not on which of them are the same object in this process. An object whose identity
matters is written as a number.
"""

import functools
import io
from typing import Any

import cloudpickle

from .plain import ATOMS, Numbered, Reduced, Reference

VERSION: str = cloudpickle.__version__


class _Maker:
    """Stand-in for a function that makes an object: the pickle holds its name, which the reader resolves."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        # Pickle requires that an object it names is callable.
        raise NotImplementedError("a maker is only named, not called")


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler of plain values and of stand-ins for other objects."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.fast = True

    def persistent_id(self, obj: Any) -> Any:
        """Return the persistent id of a stand-in; None for values that are pickled normally.

        The id is the number of a numbered object (int), the sorted bytes of a frozenset's items (list), or the name
        of a maker (str).
        """
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
        """Reduce a `Reduced` to its maker and arguments; raise TypeError for values that are not plain."""
        if type(obj) is Reduced:
            return _maker(obj.maker), obj.args
        if type(obj) not in _SIMPLE and not (type(obj) is type and obj in _SIMPLE):
            raise TypeError(f"values of type {type(obj).__qualname__} have no written form")
        return super().reducer_override(obj)


_SIMPLE = frozenset({complex, range, slice, type(...), type(NotImplemented), _Maker})

_maker = functools.cache(_Maker)


def to_bytes(value: Any) -> bytes:
    """Return the canonical bytes of a value."""
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()
