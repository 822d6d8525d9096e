"""Budget of a capture: the processor time after which the capture is abandoned.

Processor time, so that the same functions are captured on a busy machine, without full collections of garbage, which
take a second for some million objects of the program. The clock is read between steps, never inside one, so an
abandoned capture leaves nothing behind: all its state is its own, and the memos of modules hold whole results.
"""

import gc
from collections.abc import Callable

from jitclient.core.clock import thread_time
from jitclient.errors import CaptureTooSlow


class Budget:
    """Processor time of this thread that one capture may take.

    Args:
        seconds: the time, counted from now.
        why: message of the error.
        clock: returns the processor time of this thread in seconds.
        every: number of checks of which one reads the clock, because a read may take as long as a step.
        collections: returns the number of full collections of garbage so far.
    """

    def __init__(
        self,
        seconds: float,
        why: str,
        clock: Callable[[], float] = thread_time,
        every: int = 16,
        collections: Callable[[], int] = lambda: int(gc.get_stats()[-1]["collections"]),
    ) -> None:
        self._seconds = seconds
        self._why = why
        self._clock = clock
        self._every = every
        self._collections = collections
        self._checks = 0
        self._spent = 0.0
        self._read = clock(), collections()

    def spent(self) -> float:
        """Return the seconds since the start, without the steps in which a collection was made."""
        (before, made), self._read = self._read, (self._clock(), self._collections())
        now, made_now = self._read
        if made_now == made:
            self._spent += now - before
        return self._spent

    def check(self) -> None:
        """Check that the capture may continue.

        Raises:
            CaptureTooSlow: the budget is spent.
        """
        self._checks += 1
        if self._checks % self._every == 0 and self.spent() > self._seconds:
            raise CaptureTooSlow(self._why)
