"""What is retried when a daemon ends: one policy for calls, verbs, fetches and uploads."""

from collections.abc import Callable

from jitclient.errors import DaemonDraining, DaemonLost, NotSent

ATTEMPTS = 5  # to reach a daemon that is there long enough


class RetryPolicy:
    """Decides after each failed attempt of one operation whether there is another.

    What no daemon has begun is retried. What a daemon may have begun is retried only if it changes nothing, and at most
    `repeats` times, as it may be what ended the daemon. A daemon that hangs is not asked again, see `Finder.give_up`.
    """

    __slots__ = ("_attempts", "_disconnect", "_repeats")

    def __init__(self, disconnect: Callable[[], None], repeats: int = 0) -> None:
        self._disconnect = disconnect
        self._repeats = repeats
        self._attempts = ATTEMPTS

    def retries(self, error: BaseException) -> bool:
        """Whether to try again after `error`."""
        self._attempts -= 1
        if not self._attempts:
            return False
        if isinstance(error, DaemonDraining):
            self._disconnect()
            return True
        if isinstance(error, NotSent):
            return True
        if not (isinstance(error, DaemonLost) and error.may_repeat and self._repeats):
            return False
        self._repeats -= 1
        return True
