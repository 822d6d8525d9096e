"""Threads whose start comes to an end, also where memory is short.

`threading.Thread.start` waits without limit for the new thread, which may have found no memory for its first step.
"""

import _thread
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_BEGIN_SECONDS = 2.0


class Thread:
    """A daemon thread, with the part of `threading.Thread` that we use. `threading.enumerate` does not know it.

    Args:
        target: what it calls. An exception that this raises is logged.
        name: for logs.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        self.name = name
        self._target = target
        self._begun, self._ended = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin.

        Raises:
            RuntimeError: there is no thread to be had, or no memory for it.
        """
        _thread.start_new_thread(self._run, ())
        if not self._begun.wait(_BEGIN_SECONDS):
            raise RuntimeError(f"the thread {self.name!r} did not begin within {_BEGIN_SECONDS:.0f} s")

    def is_alive(self) -> bool:
        """Whether it has begun, and has not ended."""
        return self._begun.is_set() and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended; no longer than `timeout` seconds."""
        self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._begun.set()
            self._target()
        except Exception:
            log.exception("the thread %r has failed", self.name)
        finally:
            self._ended.set()
