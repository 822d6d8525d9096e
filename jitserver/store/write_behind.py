"""Background writes to disk, done while the daemon is idle."""

import logging
import threading
import time
from collections.abc import Callable

from jitclient.core.threads import Thread

log = logging.getLogger(__name__)

Job = Callable[[], object]

_QUIET_SECONDS = 0.25
_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.05


class Writer:
    """A thread that runs jobs one after another while the daemon is quiet.

    Serializing a program holds the GIL, for half a second if the program is large. The client that requested the
    program should have its first result before that.
    """

    def __init__(self, activity: Callable[[], int]) -> None:
        """Start the thread.

        Args:
            activity: returns a number that changes while the daemon is active.
        """
        self._activity = activity
        self._jobs: dict[str, tuple[float, Job]] = {}
        self._changed = threading.Condition()
        self._hurry = False
        self._busy = False
        self.thread = Thread(self._run, "writer")
        self.thread.start()

    def add(self, key: str, job: Job) -> None:
        """Schedule a job; it replaces a pending job of the same key."""
        with self._changed:
            self._jobs[key] = time.monotonic(), job
            self._changed.notify_all()

    def cancel(self, key: str) -> None:
        """Remove a pending job; a job that has started is not interrupted."""
        with self._changed:
            self._jobs.pop(key, None)

    def wait_for(self, key: str) -> None:
        """Wait until the job of a key is done; return at once if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: key not in self._jobs and not self._busy)

    def finish(self, seconds: float) -> bool:
        """Run all pending jobs at once; return whether this took no longer than `seconds`."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._jobs)
                oldest, _ = next(iter(self._jobs.values()))
            self._wait_for_quiet(oldest + _PATIENCE_SECONDS)
            with self._changed:
                if not self._jobs:
                    continue
                _, job = self._jobs.pop(next(iter(self._jobs)))
                self._busy = True
            try:
                job()
            except Exception:
                log.exception("disk cache: a background job failed")
            # A job holds a program, its capture and its trace, and the next job may be long in coming.
            del job

    def _wait_for_quiet(self, patience: float) -> None:
        seen, since = self._activity(), time.monotonic()
        with self._changed:
            while not self._hurry and time.monotonic() < min(since + _QUIET_SECONDS, patience):
                self._changed.wait(_POLL_SECONDS)
                if self._activity() != seen:
                    seen, since = self._activity(), time.monotonic()
