"""Numbers for the objects of a capture that both sides can name."""

from typing import Any

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import is_plain


class ObjectIndex:
    """Index of a capture's objects: first the extras, then every nameable object that the program makes.

    Objects are found by identity. Plain values among the extras, which have no identity, are found by value.
    """

    def __init__(self, extras: tuple[Any, ...], named: list[Any]) -> None:
        self._objects = [*extras, *named]
        self._indices: dict[int | bytes, int] = {}
        for index, obj in enumerate(self._objects):
            key = _key(obj) if index < len(extras) else id(obj)
            self._indices.setdefault(key, index)

    def index_of(self, obj: object) -> int | None:
        """Return the index of a captured object, or None if it has none."""
        index = self._indices.get(id(obj))
        return index if index is not None else self._indices.get(_key(obj))

    def object_at(self, index: int) -> Any:
        """Return the object with this index; raise IndexError if there is none."""
        if index < 0:
            raise IndexError(index)
        return self._objects[index]


def _key(obj: Any) -> int | bytes:
    return to_bytes(obj) if is_plain(obj) else id(obj)
