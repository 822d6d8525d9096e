"""Retrying a call when its daemon ends, or has no room."""

from jitclient.calls import copies
from jitclient.errors import ArrayBudgetExceeded, DaemonError, DaemonLost, ProgramLost
from jitclient.sessions.retry import RetryPolicy
from jitclient.sessions.session import Session

MAY_REPEAT = ArrayBudgetExceeded, ProgramLost, DaemonError
"""Errors after which a call may be retried."""


class Attempts:
    """The attempts at one call."""

    __slots__ = ("_policy", "_prepared_again", "_session")

    def __init__(self, session: Session, lost: DaemonLost | None = None) -> None:
        """Start counting. `lost` is the error of an attempt that a call plan made.

        Raises:
            DaemonLost: `lost`, if it must not be retried.
        """
        self._session = session
        self._policy = RetryPolicy(session.disconnect, repeats=1)
        self._prepared_again = False
        if lost is not None and not self._policy.retries(lost):
            raise lost

    def ended(self, error: Exception) -> None:
        """Return if there is to be another attempt after `error`, one of MAY_REPEAT; else raise it."""
        if isinstance(error, ArrayBudgetExceeded):  # the call did not run
            again = copies.free_all()
        elif isinstance(error, ProgramLost):  # nor did this one
            again = not self._prepared_again  # else the program of an argument is lost, which cannot be computed again
            if again:
                self._prepared_again = True
                self._session.forget_programs()
        else:
            again = self._policy.retries(error)
        if not again:
            raise error
