"""Background work in a thread that exists only while there is some."""

import _thread
import time
from collections.abc import Callable

SOON_SECONDS = 0.001


class Background:
    """Calls `work` in a thread until it was idle `quiet` times in a row; an idle program has no thread, and may fork.

    `work` returns whether there was anything to do, and the seconds until the next call. Each call takes the GIL from
    the program, perhaps in the middle of a call.
    """

    def __init__(self, work: Callable[[], tuple[bool, float]], quiet: int = 1) -> None:
        self._work = work
        self._quiet = quiet
        self.awake = False
        """Whether the thread exists."""
        self._stopping = False

    def wake(self) -> None:
        """Start the thread if there is none. Runs inside garbage collections: no lock, no I/O."""
        if self.awake:
            return
        self.awake = True
        try:
            # Not threading.Thread, whose locks this thread may be holding while it collects garbage.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no thread is available; the next `wake` tries again
            self.awake = False

    def rest(self) -> None:
        """Stop the thread, and wait for its end for up to a second: no fork may inherit it."""
        self._stopping = True
        for _ in range(1000):
            if not self.awake:
                break
            time.sleep(SOON_SECONDS)
        self._stopping = False

    def _run(self) -> None:
        quiet, seconds = 0, SOON_SECONDS
        while quiet < self._quiet and not self._stopping:
            time.sleep(seconds)
            more, seconds = self._work()
            quiet = 0 if more else quiet + 1
        self.awake = False
        if not self._stopping and self._work()[0]:  # work that arrived after the last call, before `awake` was cleared
            self.wake()
