"""Getting a call done while daemons come and go."""

from jitclient.calls import copies
from jitclient.calls.program import Program
from jitclient.errors import ArrayBudgetExceeded, DaemonError, DaemonLost, ProgramLost
from jitclient.sessions.retry import RetryPolicy
from jitclient.sessions.session import Session

MAY_REPEAT = ArrayBudgetExceeded, ProgramLost, DaemonError
"""What may end an attempt that is not the last."""


class Attempts:
    """Those that one call may take: what ends one of them is raised, or there is another."""

    __slots__ = ("_policy", "_prepared_again", "_stay")

    def __init__(self, stay: Session, lost: DaemonLost | None = None) -> None:
        """`lost` is what a try before ended with, of a call that changes nothing.

        Raises:
            DaemonLost: `lost`, where there may be no other try.
        """
        self._stay = stay
        self._policy = RetryPolicy(stay.disconnect, repeats=1)
        self._prepared_again = False
        if lost is not None and not self._policy.retries(lost):
            raise lost

    def ended(self, error: Exception, program: Program | None) -> None:
        """Returns where there is to be another after an error that is one of MAY_REPEAT; `program` is what was called,
        or None where it could not be had.

        Raises:
            Exception: the error, where not.
        """
        if isinstance(error, ArrayBudgetExceeded):  # it did not run
            again = copies.free_all()
        elif isinstance(error, ProgramLost):  # nor did it now
            again = not self._prepared_again  # else it is an argument that was lost with its program
            if again:
                self._prepared_again = True
                self._stay.forget_programs()
        else:  # what uses up its arguments may not run twice
            uses_up = program is not None and bool(program.prepared.donated)
            again = self._policy.retries(error, changes=uses_up)
        if not again:
            raise error
