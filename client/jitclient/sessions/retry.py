"""What is done again when a daemon ends under it: one policy for calls, questions, looks and puts."""

from collections.abc import Callable

from jitclient.errors import DaemonDraining, DaemonLost, DaemonSilent, NotSent

ATTEMPTS = 5  # to reach a daemon that is there long enough


class RetryPolicy:
    """Says after each failure of one thing whether it is done again.

    What no daemon has begun is. What one may have begun is not, but where that changes nothing: so often as `repeats`
    says, as it may be what ended the daemon. What a daemon is silent about is not: the next would be silent, too.
    """

    __slots__ = ("_attempts", "_disconnect", "_repeats")

    def __init__(self, disconnect: Callable[[], None], repeats: int = 0) -> None:
        self._disconnect = disconnect
        self._repeats = repeats
        self._attempts = ATTEMPTS

    def retries(self, error: BaseException, changes: bool = False) -> bool:
        """Whether it is done again after that; `changes`: it may not be done twice, as is known by now."""
        self._attempts -= 1
        if not self._attempts:
            return False
        if isinstance(error, DaemonDraining):
            self._disconnect()
            return True
        if isinstance(error, NotSent):
            return True
        if not isinstance(error, DaemonLost) or isinstance(error, DaemonSilent) or changes or not self._repeats:
            return False
        self._repeats -= 1
        return True
