"""Work that is done when the program does something else, in a thread that lives only as long as there is some."""

import _thread
import time
from collections.abc import Callable

SOON_SECONDS = 0.001


class Background:
    """Calls `work` until it has had nothing to do `quiet` times, in a thread that lives only so long: a program that
    does nothing has none, and may fork.

    `work` says whether there is anything to do, and in how many seconds to call it again. To be called costs the
    program's own thread a turn of the interpreter, in the middle of a call perhaps.
    """

    def __init__(self, work: Callable[[], tuple[bool, float]], quiet: int = 1) -> None:
        self._work = work
        self._quiet = quiet
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
        except RuntimeError:  # no thread can be had; who wakes it next tries again
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
        while quiet < self._quiet and not self._told_to_rest:
            time.sleep(seconds)
            more, seconds = self._work()
            quiet = 0 if more else quiet + 1
        self.awake = False
        if not self._told_to_rest and self._work()[0]:  # what came between the last look and that line
            self.wake()
