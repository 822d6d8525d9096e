"""What a session does when its program does nothing with it: sends what is queued, tells of dropped handles."""

import _thread
import time
from collections.abc import Callable

SOON_SECONDS, LATER_SECONDS = 0.001, 0.005
_QUIET_TICKS = 10


class Background:
    """Calls `work` until it has had nothing to do for a while, in a thread that lives only so long: a program that does
    nothing has none, and may fork.

    `work` says whether there was anything to do, and in how many seconds to call it again. To be called costs the
    program's own thread a turn of the interpreter, in the middle of a call perhaps.
    """

    def __init__(self, work: Callable[[], tuple[bool, float]]) -> None:
        self._work = work
        self.awake = False
        """Whether there is a thread, so that there is no need to wake it."""
        self._told_to_rest = False

    def wake(self) -> None:
        """Has the work done soon. Runs inside garbage collections: no lock, no I/O."""
        if self.awake:
            return
        self.awake = True
        try:
            # Not threading.Thread, whose locks this thread may be holding while it collects garbage.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no thread can be had; the next exchange does it
            self.awake = False

    def rest(self) -> None:
        """Returns when there is no thread, as before a fork, or after a second."""
        self._told_to_rest = True
        for _ in range(1000):
            if not self.awake:
                break
            time.sleep(SOON_SECONDS)  # once more than it takes: the thread has a few steps to its end
        self._told_to_rest = False

    def _run(self) -> None:
        quiet, seconds = 0, SOON_SECONDS
        while quiet < _QUIET_TICKS and not self._told_to_rest:
            time.sleep(seconds)
            worked, seconds = self._work()
            quiet = 0 if worked else quiet + 1
        self.awake = False
        if not self._told_to_rest:
            self._work()  # what came between the last look and that line
