"""Retrying a call when its daemon ends, or has no room."""

from collections.abc import Callable
from typing import TypeVar

from jitclient.calls import copies
from jitclient.errors import ArrayBudgetExceeded, DaemonError, DaemonLost, JitserverError, ProgramLost
from jitclient.session.retry import RetryPolicy
from jitclient.session.session import Session

T = TypeVar("T")


class CallFailed(Exception):  # noqa: N818
    """A call raised `error` on the daemon, or in a callback. Everything of ours went well."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(type(error)))
        self.error = error


def raised_by_call(error: BaseException) -> BaseException:
    """Return what to raise for an exception of a call: our own exceptions as they are, for those who handle them."""
    return error if isinstance(error, JitserverError) else CallFailed(error)


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
