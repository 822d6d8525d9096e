"""How a capture is written: as a pickle that makes its objects one after the other.

A pickle of ours never remembers what it wrote: its bytes depend on values, not on which of them are one object in this
process. What has an identity that counts is a node, made once, and named by its number from then on.
"""

import functools
import hashlib
import io
from typing import Any, NamedTuple

import cloudpickle

from .graph import Node, Reduced

FORMAT = 6
"""Part of the context of every key: raise it whenever the same function gets other bytes."""


_VERSION: str = cloudpickle.__version__


class Head(NamedTuple):
    """The first of the three pickles of a capture; then come its steps, and what these were made for."""

    format: int = FORMAT
    cloudpickle: str = _VERSION
    has_classes: bool = False


class Reference(int):
    """The number of an object that was made before."""


class _Maker:
    """Stands for what is called to make something: a pickle has its name, and its reader knows what that means."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        raise NotImplementedError("it is named only")  # pickle wants what it names to be callable


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes values of `graph.py`."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.fast = True

    def persistent_id(self, obj: Any) -> Any:
        """An int for an object by its number, a list for what a frozenset holds, a str for a maker."""
        kind = type(obj)
        if kind is Node:
            return obj.index
        if kind is Reference:
            return int(obj)
        if kind is frozenset:
            return sorted(obj, key=to_bytes)
        return obj.name if kind is _Maker else None

    def reducer_override(self, obj: Any) -> Any:
        """Says of a `Reduced` how it is made; the rest is cloudpickle's."""
        if type(obj) is Reduced:
            return _maker(obj.maker), obj.args
        return super().reducer_override(obj)


_maker = functools.cache(_Maker)


def to_bytes(value: Any) -> bytes:
    """The canonical bytes of a value."""
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def digest(data: bytes) -> str:
    """The hex digest that serves as a key."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
