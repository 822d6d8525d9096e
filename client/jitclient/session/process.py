"""Session of this process with its daemon."""

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

from jitclient.core import events, first_use
from jitclient.core.settings import Settings, settings
from jitclient.core.tracebacks import api_boundary

if TYPE_CHECKING:
    from jitclient.session.session import Session

inside_daemon = False
"""Whether this process is a daemon, where calls in captured code run as a nested `jax.jit`."""

current: "Session | None" = None
"""Session of this process; None before its first use."""
_lock = threading.Lock()
# Weak references: a session without users closes with its connection.
_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def become_daemon() -> None:
    """Mark this process as a daemon."""
    global inside_daemon
    inside_daemon = True


def session() -> "Session":
    """Return the session of this process, created on first use."""
    global current
    if current is not None:
        return current
    with _lock:
        if current is None:
            current = _new_session(settings())
        return current


def sessions() -> "list[Session]":
    """Return the sessions of this process."""
    return list(_sessions)


@api_boundary
def connect(address: str | None = None, *, timeout: float | None = None) -> "Session":
    """Connect to the daemon now; start one if none answers.

    Handles of an earlier session stay valid at its daemon.

    Args:
        address: address of the daemon; overrides JITSERVER_ADDRESS.
        timeout: seconds without a sign of life after which a daemon counts as hanging; overrides JITSERVER_TIMEOUT. A
            working daemon sends a sign every second.

    Raises:
        SettingsError: the address is invalid.
        DaemonUnavailable: no daemon answers at the address, and none could be started.

    Example:
        >>> jitclient.connect("unix:/run/user/1000/jitserver/other.sock")
    """
    global current
    chosen = settings()
    if address is not None:
        chosen = chosen._replace(address=address)
    if timeout is not None:
        chosen = chosen._replace(timeout=timeout)
    made = _new_session(chosen)
    with made, _lock:
        current = made
    return made


def _new_session(chosen: Settings) -> "Session":
    # Imported late: loads rpyc and msgspec, which most imports do not need.
    if not inside_daemon:
        first_use.note()
    if not events.log.is_asked:
        from jitclient.session.session import Session

        made = Session(chosen)
    else:
        from jitclient.session.timed_session import TimedSession

        made = TimedSession(chosen)
    _sessions.add(made)
    return made


@atexit.register
def _close_all() -> None:
    for each in list(_sessions):
        each.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
