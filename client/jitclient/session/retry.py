"""Retries. `with_retries` repeats requests to a daemon; below it, only `handshake` retries, to reach a daemon.

After a failed request:

    failure                      another attempt
    NotSent, DaemonDraining      yes: no daemon has begun the request
    DaemonLost                   `repeats` times, if it `may_repeat`: it may have been done, or have crashed the daemon
    DaemonSilent                 as for DaemonLost, but the attempt raises DaemonHangs during a pause
    ArrayBudgetExceeded          of a call: yes, if there were copies to free (`calls.attempts`)
    ProgramLost                  of a call: once, after which it looks up its program again (`calls.attempts`)
    others                       no

NotSent also stands for a connection that broke before the daemon began a Run (`Session.run`) or while the session was
resumed (`Link.connect`), and for a call of a program from an earlier program generation. The handles of an earlier
generation raise ArrayLost.

After a failure to reach a daemon:

    failure                      another attempt
    DaemonLost, DaemonDraining   yes, for two seconds: the daemon is stopping, and the attempt may start another
    HostUnreachable              of a client with a session: yes, for a minute
    DaemonSilent                 after a pause, and with little patience; until then, requests raise DaemonHangs
    others                       after a pause that grows with the time to fail; until then, requests raise the failure
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from jitclient.errors import DaemonDraining, DaemonError, DaemonLost, JitserverError, NotSent

if TYPE_CHECKING:
    from jitclient.session.link import Link

# Maximum number of attempts to reach a daemon that runs long enough to answer.
ATTEMPTS = 5
T = TypeVar("T")


def with_retries(
    link: "Link",
    attempt: Callable[[], T],
    repeats: int = 0,
    lost: DaemonLost | None = None,
    is_cured: Callable[[JitserverError], bool] | None = None,
) -> T:
    """Call `attempt`, and again after a failure that allows it; return its result.

    Args:
        link: link to the daemon.
        attempt: function that makes the request.
        repeats: how often to repeat a request that a daemon may have begun.
        lost: error of an attempt that was made already.
        is_cured: function that returns whether it removed the cause of an error that is no DaemonError.
    """
    left = ATTEMPTS

    def may_retry(error: JitserverError) -> bool:
        nonlocal left, repeats
        if not isinstance(error, DaemonError):
            return is_cured is not None and is_cured(error)
        left -= 1
        if not left:
            return False
        if isinstance(error, DaemonDraining):
            link.disconnect()
            return True
        if isinstance(error, NotSent):
            return True
        if isinstance(error, DaemonLost) and error.may_repeat and repeats:
            repeats -= 1
            return True
        return False

    if lost is not None and not may_retry(lost):
        raise lost
    while True:
        try:
            return attempt()
        except JitserverError as error:
            if not may_retry(error):
                raise
