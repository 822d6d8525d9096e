"""Getting a call done while daemons come and go."""

from collections.abc import Callable, Sequence
from typing import Any

from jitclient.calls import copies
from jitclient.calls.program import Program
from jitclient.errors import ArrayBudgetExceeded, DaemonError, DaemonLost, ProgramLost
from jitclient.sessions.recovery import Recovery
from jitclient.sessions.session import Session


def call(
    stay: Session, program_at: Callable[[Session], Program], leaves: Sequence[Any], lost: DaemonLost | None = None
) -> Any:
    """Runs a program once on the leaves of its arguments. `program_at` gets it where the daemon is another by now.

    `lost` is what a try before ended with, of a call that changes nothing.

    Raises:
        DaemonLost: the daemon went away; nothing tells whether the call ran.
        BaseException: what making the program or calling it raised.
    """
    recovery = Recovery(stay, repeats=1)
    if lost is not None and not recovery.retries(lost):
        raise lost
    made_anew = False
    while True:
        program: Program | None = None
        try:
            program = program_at(stay)
            return program.call(leaves)
        except ArrayBudgetExceeded:  # it did not run
            if not copies.let_go():
                raise
        except ProgramLost:  # nor did it now
            if made_anew:  # it is an argument that was lost with its program
                raise
            made_anew = True
            stay.prepare_anew()
        except DaemonError as error:  # what uses up its arguments may not run twice
            if not recovery.retries(error, changes=program is not None and bool(program.prepared.donated)):
                raise
