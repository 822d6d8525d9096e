"""Handles that nobody holds any more, until the daemon is told."""

import collections
from collections.abc import Iterable


class Drops:
    """Collects dropped handles. Safe inside garbage collections: no lock, no I/O."""

    def __init__(self) -> None:
        self._handles: collections.deque[int] = collections.deque()

    def __bool__(self) -> bool:
        return bool(self._handles)

    def add(self, handle: int) -> None:
        """Notes a handle."""
        self._handles.append(handle)

    def take(self) -> tuple[int, ...]:
        """Those noted so far, which are whoever takes them to send."""
        taken = []
        while self._handles:  # one by one: a garbage collection may add to it meanwhile
            taken.append(self._handles.popleft())
        return tuple(taken)

    def put_back(self, handles: Iterable[int]) -> None:
        """Notes handles again that could not be sent; to drop one twice does no harm: no name is used again."""
        self._handles.extend(handles)

    def clear(self) -> None:
        """Forgets them: the daemon holds none of them any more."""
        self._handles.clear()
