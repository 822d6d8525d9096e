"""One trace at a time: libraries keep state in their modules, and Python runs one thread at a time anyway."""

import contextlib
import threading
import time
from collections.abc import Iterator

from jitclient.errors import CaptureError

_PATIENCE_SECONDS = 10.0  # a function that waits longer for one trace is traced in its client


class Busy(CaptureError):  # noqa: N818
    """A function cannot be traced now, because another trace takes long."""


class TraceLock:
    """A lock for traces. Waiting ends when the current trace has taken long, as it may never end."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._since: float | None = None  # when the current trace began

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Holds the lock, or raises Busy as the current trace takes long."""
        with self._turn:
            while self._since is not None:
                left = self._since + _PATIENCE_SECONDS - time.monotonic()
                if left <= 0:
                    raise Busy("the daemon is busy with a long trace")
                self._turn.wait(left)
            self._since = time.monotonic()
        try:
            yield
        finally:
            with self._turn:
                self._since = None
                self._turn.notify()


traces = TraceLock()
"""The lock of this process."""
