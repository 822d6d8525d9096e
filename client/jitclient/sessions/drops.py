"""Handles that nobody holds any more, and how the daemon comes to hear of them."""

import _thread
import collections
import time
from collections.abc import Callable, Iterable

_MOMENT_SECONDS = 0.05


class Drops:
    """Collects dropped handles, and calls `send` a moment later, as handles tend to go together.

    That call comes from a thread which lives for that moment: a program that drops nothing has none, and may fork.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._handles: collections.deque[int] = collections.deque()
        self._awake = False

    def __bool__(self) -> bool:
        return bool(self._handles)

    def add(self, handle: int) -> None:
        """Notes a handle. Runs inside garbage collections: no lock, no I/O."""
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

    def wake(self) -> None:
        """Has `send` called soon, if there is anything to send. Runs inside garbage collections too."""
        if self._awake or not self._handles:
            return
        self._awake = True
        try:
            # Not threading.Thread, whose locks this thread may be holding while it collects garbage.
            _thread.start_new_thread(self._work, ())
        except RuntimeError:  # no thread can be had; they go with the next call
            self._awake = False

    def _work(self) -> None:
        time.sleep(_MOMENT_SECONDS)
        self._awake = False
        self._send()
