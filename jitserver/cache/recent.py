"""A mapping that keeps what was looked up last."""

import collections
import threading
from collections.abc import Iterator, MutableMapping
from typing import TypeVar

Value = TypeVar("Value")


class Recent(MutableMapping[str, Value]):
    """Holds at most `most` values and lets go of the one that was looked up longest ago. Safe to use from threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: collections.OrderedDict[str, Value] = collections.OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> Value:
        with self._lock:
            self._values.move_to_end(key)  # raises KeyError where it is missing
            return self._values[key]

    def __setitem__(self, key: str, value: Value) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def __delitem__(self, key: str) -> None:
        with self._lock:
            del self._values[key]

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def snapshot(self) -> list[Value]:
        """The values as they are now; none of them counts as looked up."""
        with self._lock:
            return list(self._values.values())
