"""The lock that allows one trace at a time.

Libraries keep state in their modules, and the GIL lets only one thread run Python code at a time in any case.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

from jitclient.errors import CaptureError

# A function that waits longer for one trace is traced in its client instead.
_PATIENCE_SECONDS = 10.0


class TraceBusy(CaptureError):  # noqa: N818
    """A function cannot be traced now, because another trace takes long."""


class TraceLock:
    """A lock for traces. Waiting is limited by the age of the current trace, which may never finish."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._since: float | None = None  # start of the current trace

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the lock during the context.

        Raises:
            Busy: the current trace has taken too long.
        """
        with self._turn:
            while self._since is not None:
                left = self._since + _PATIENCE_SECONDS - time.monotonic()
                if left <= 0:
                    raise TraceBusy("the daemon is busy with a long trace")
                self._turn.wait(left)
            self._since = time.monotonic()
        try:
            yield
        finally:
            with self._turn:
                self._since = None
                self._turn.notify()


traces = TraceLock()
"""The trace lock of this process."""
