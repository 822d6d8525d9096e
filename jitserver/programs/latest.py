"""A mapping with a limit, so that what a daemon remembers for weeks stays small."""

import threading
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Latest(Generic[K, V]):
    """Mapping that keeps a number of items, those that were put last. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: dict[K, V] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        return self._items.get(key)

    def setdefault(self, key: K, value: V) -> V:
        """Return the value of a key; if there is none, put this one."""
        with self._lock:
            if key in self._items:
                return self._items[key]
            self._put(key, value)
            return value

    def put(self, key: K, value: V) -> None:
        """Set the value of a key, which is the latest from now on."""
        with self._lock:
            self._put(key, value)

    def pop(self, key: K) -> None:
        """Remove a key, if it is there."""
        with self._lock:
            self._items.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        """Return all items, the latest last."""
        with self._lock:
            return [*dict(self._items).items()]

    def _put(self, key: K, value: V) -> None:
        self._items.pop(key, None)
        self._items[key] = value
        if len(self._items) > self._most:
            del self._items[next(iter(self._items))]
