"""Getting a call done while daemons come and go."""

from collections.abc import Callable, Sequence
from typing import Any

from jitclient.calls import copies
from jitclient.calls.program import Outdated, Program
from jitclient.errors import ArrayBudgetExceeded, DaemonDraining, DaemonLost, DaemonSilent, NotSent, ProgramLost
from jitclient.sessions.session import Session

_ATTEMPTS = 5  # to reach a daemon that restarts under us


def call(
    stay: Session, program_at: Callable[[Session], Program], leaves: Sequence[Any], lost: DaemonLost | None = None
) -> Any:
    """Runs a program once on the leaves of its arguments. `program_at` gets it where the daemon is another by now.

    `lost` is what a try before ended with, of a call that changes nothing.

    Raises:
        DaemonLost: the daemon went away; nothing tells whether the call ran.
        BaseException: what making the program or calling it raised.
    """
    if isinstance(lost, DaemonSilent):
        raise lost
    if isinstance(lost, NotSent):
        lost = None
    made_anew = False
    for _ in range(_ATTEMPTS):
        program: Program | None = None
        try:
            program = program_at(stay)
            return program.call(leaves)
        except (Outdated, NotSent):
            continue  # it did not run
        except ArrayBudgetExceeded:  # nor did it now
            if not copies.let_go():
                raise
        except ProgramLost:  # nor did it now
            if made_anew:  # it is an argument that was lost with its program
                raise
            made_anew = True
            stay.prepare_anew()
        except DaemonDraining:
            stay.disconnect()  # nor did it now; the next daemon takes it
        except DaemonLost as error:
            # Whether it ran is unknown: only what changes nothing and loses nothing may run again, and once, as it
            # may be what ended the daemon.
            changes = program is not None and program.prepared.donated
            if changes or lost is not None or isinstance(error, DaemonSilent):
                raise
            lost = error
    raise DaemonLost(f"the daemon at {stay.address} restarted {_ATTEMPTS} times during one call") from lost
