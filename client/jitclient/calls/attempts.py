"""How often a call may be repeated after its daemon failed or had no memory for it; `session.retry` repeats it."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from jitclient.calls import copies
from jitclient.errors import ArrayBudgetExceeded, DaemonLost, JitserverError, ProgramLost
from jitclient.jaxside.runtime_errors import as_exhausted
from jitclient.session.exceptions import to_exception
from jitclient.session.retry import with_retries
from jitclient.session.session import Session
from jitclient.wire.reply import Reply

T = TypeVar("T")


class CallFailed(Exception):  # noqa: N818
    """Failure of the computation, not of jitserver: a call raised `error` on the daemon or in a callback."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(type(error)))
        self.error = error


def raised_by_call(error: BaseException) -> BaseException:
    """Return the exception to raise for a call's error: jitserver's own errors unchanged, others as `CallFailed`."""
    if isinstance(error, ArrayBudgetExceeded):
        return as_exhausted(error)
    return error if isinstance(error, JitserverError) else CallFailed(error)


def raise_failure(reply: Reply) -> NoReturn:
    """Raise the failure of a call that was sent alone."""
    raise raised_by_call(to_exception(reply.failures[0][1]))


def attempted(session: Session, attempt: Callable[[], T], lost: DaemonLost | None = None) -> T:
    """Call `attempt`, and again after an error that a retry may cure; return its result.

    `lost` is the error of a call plan's attempt, which counts as the first.
    """
    is_first_loss = True

    def is_cured(error: JitserverError) -> bool:
        nonlocal is_first_loss
        if isinstance(error, ArrayBudgetExceeded):
            return copies.free_all()
        # After a second failure, the lost program is that of an argument, which cannot be computed again.
        if isinstance(error, ProgramLost) and is_first_loss:
            is_first_loss = False
            session.forget_programs()
            return True
        return False

    return with_retries(session, attempt, 1, lost, is_cured)
