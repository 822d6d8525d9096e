"""Policy of retries after a daemon failed, for calls, verbs, fetches and uploads."""

from collections.abc import Callable

from jitclient.errors import DaemonDraining, DaemonLost, NotSent

# Maximum number of attempts to reach a daemon that runs long enough to answer.
ATTEMPTS = 5


class RetryPolicy:
    """Policy that decides after each failed attempt of one operation whether to make another.

    An operation that no daemon has begun is retried. An operation that a daemon may have begun is retried only if it
    changes nothing, and at most `repeats` times, because it may have crashed the daemon. A daemon that hangs is not
    asked again, see `Finder.mark_hanging`.
    """

    __slots__ = ("_attempts", "_disconnect", "_repeats")

    def __init__(self, disconnect: Callable[[], None], repeats: int = 0) -> None:
        self._disconnect = disconnect
        self._repeats = repeats
        self._attempts = ATTEMPTS

    def retries(self, error: BaseException) -> bool:
        """Return whether to try again after `error`."""
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
