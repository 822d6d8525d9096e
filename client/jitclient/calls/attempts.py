"""Retrying a call when its daemon ends, or has no room."""

from collections.abc import Callable
from typing import TypeVar

from jitclient.calls import copies
from jitclient.errors import ArrayBudgetExceeded, DaemonError, DaemonLost, ProgramLost
from jitclient.sessions.retry import RetryPolicy
from jitclient.sessions.session import Session

T = TypeVar("T")


def attempted(session: Session, attempt: Callable[[], T], lost: DaemonLost | None = None) -> T:
    """The result of `attempt`, which is called again if that may help; `lost` is the error of a call plan's attempt."""
    policy = RetryPolicy(session.disconnect, repeats=1)
    if lost is not None and not policy.retries(lost):
        raise lost
    prepared_again = False
    while True:
        try:
            return attempt()
        except ArrayBudgetExceeded:  # the call did not run
            if not copies.free_all():
                raise
        except ProgramLost:  # nor did this one
            if prepared_again:  # the program of an argument is lost, which cannot be computed again
                raise
            prepared_again = True
            session.forget_programs()
        except DaemonError as error:
            if not policy.retries(error):
                raise
