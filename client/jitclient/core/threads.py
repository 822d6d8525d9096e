"""Threads whose start always returns or raises, even if memory is short.

`threading.Thread.start` waits without limit for the new thread, which may lack the memory for its first step.
"""

import _thread
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_START_SECONDS = 2.0


class Thread:
    """Daemon thread with the subset of `threading.Thread` that jitserver uses; not listed by `threading.enumerate`.

    Args:
        target: function that the thread calls. An exception that it raises is logged.
        name: name of the thread in logs.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        self.name = name
        self._target = target
        self._begun, self._ended = threading.Event(), threading.Event()

    def start(self) -> None:
        """Start the thread, and wait until it runs.

        Raises:
            RuntimeError: the system has no thread or no memory for it.
        """
        _thread.start_new_thread(self._run, ())
        if not self._begun.wait(_START_SECONDS):
            raise RuntimeError(f"the thread {self.name!r} did not start within {_START_SECONDS:.0f} s")

    def is_alive(self) -> bool:
        """Return whether the thread runs: it has started and has not finished."""
        return self._begun.is_set() and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has finished, at most `timeout` seconds."""
        self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._begun.set()
            self._target()
        except Exception:
            log.exception("the thread %r has failed", self.name)
        finally:
            self._ended.set()
