"""The session of this process."""

import atexit
import dataclasses
import os
import threading

from jitclient.sessions.session import Session
from jitclient.settings import settings

inside_daemon = False
"""Set by the daemon in its own process: captured code that calls us there runs as a nested `jax.jit`."""

_session: Session | None = None
_lock = threading.Lock()


def session() -> Session:
    """The session of this process, made at the first use."""
    global _session
    if _session is not None:
        return _session
    with _lock:
        if _session is None:
            _session = Session(settings())
            atexit.register(_session.close)
        return _session


def connect(address: str | None = None) -> Session:
    """Connects to the daemon now, at `address` if given, and starts one where none answers.

    Handles from an earlier session stay with its daemon.

    Raises:
        SettingsError: the address names none.
        DaemonUnavailable: no daemon answers there, and none could be started.

    Example:
        >>> jitclient.connect("unix:/run/user/1000/jitserver/other.sock")
    """
    global _session
    chosen = settings() if address is None else dataclasses.replace(settings(), address=address)
    made = Session(chosen)
    atexit.register(made.close)
    with made, _lock:
        _session = made
    return made


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
