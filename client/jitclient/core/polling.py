"""Limited waits for events that nothing announces."""

from jitclient.core.clock import monotonic, sleep


class Polling:
    """Pauses between attempts, for a limited time. An attempt follows each pause, so the last one is after that time.

    Example:
        >>> polling = Polling(seconds=60.0)
        >>> while not try_lock(file):
        ...     if not polling.pause():
        ...         raise TimeoutError
    """

    def __init__(self, seconds: float, interval: float = 0.02) -> None:
        self._deadline = monotonic() + seconds
        self._interval = interval

    def pause(self) -> bool:
        """Sleep until the next attempt, and return True; return False at once if the time is over."""
        if monotonic() >= self._deadline:
            return False
        sleep(self._interval)
        return True
