"""How values are read: as data, which calls nothing. `steps/builder.py` runs what it reads."""

import builtins
import io
import pickle
from typing import Any

from .words import COMPOUND, Reduced, Reference

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
    found: list[int] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[int]) -> None:
    if type(value) is Reference:
        found.append(int(value))
    elif type(value) in COMPOUND:
        for part in value:
            _collect(part, found)
