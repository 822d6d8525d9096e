"""One trace at a time: libraries keep what is open in their modules, and Python runs one thread at a time anyway."""

import contextlib
import threading
import time
from collections.abc import Iterator

from jitclient.errors import CaptureError

_PATIENCE_SECONDS = 10.0  # with one trace: what waits for it is left to its client then


class Busy(CaptureError):  # noqa: N818
    """A function cannot be traced now."""


class TraceLock:
    """Who may trace. A trace that takes long, or never ends, is waited for once and by nobody after that."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._since: float | None = None  # when the present trace began

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Waits for the present trace, and is the next.

        Raises:
            Busy: the present one takes long.
        """
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
"""Those of this process."""
