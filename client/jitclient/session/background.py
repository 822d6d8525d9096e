"""Background work in a thread that exists only while there is work."""

import _thread
from collections.abc import Callable

from jitclient.core.clock import sleep
from jitclient.core.polling import Polling

SOON_SECONDS = 0.001


class Background:
    """Thread that calls `work` until it was idle `quiet` times in a row. An idle program has no thread, and may fork.

    `work` returns whether there was work to do, and the seconds until its next call. Each call takes the GIL from the
    program, perhaps while the program makes a call of its own.
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
            # Not threading.Thread: this thread may hold its locks while it collects garbage.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            # No thread is available; the next `wake` tries again.
            self.awake = False

    def rest(self) -> None:
        """Stop the thread, and wait up to a second for its exit: a fork must not inherit it."""
        self._stopping = True
        polling = Polling(1.0, SOON_SECONDS)
        while self.awake and polling.pause():
            pass
        self._stopping = False

    def _run(self) -> None:
        quiet, seconds = 0, SOON_SECONDS
        while quiet < self._quiet and not self._stopping:
            sleep(seconds)
            more, seconds = self._work()
            quiet = 0 if more else quiet + 1
        self.awake = False
        # Work may have arrived after the last call of `work`, but before `awake` was cleared.
        if not self._stopping and self._work()[0]:
            self.wake()
