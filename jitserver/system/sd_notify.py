"""Interface to systemd: readiness, watchdog, and the inherited socket."""

import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

from jitclient.core.threads import Thread

log = logging.getLogger(__name__)

_FIRST_FD = 3


def notify(state: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Send a state such as `READY=1`, `STOPPING=1` or `WATCHDOG=1` to systemd (sd_notify(3)).

    Does nothing if systemd did not start this process; logs a warning if the message cannot be sent.
    """
    path = environment.get("NOTIFY_SOCKET")
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
    except OSError as error:  # such as no free file descriptors
        log.warning("systemd: cannot send %s (%s)", state, error)


def inherited_socket(environment: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening socket that systemd opened for this process (sd_listen_fds(3)), or None."""
    if environment.get("LISTEN_PID") != str(os.getpid()) or environment.get("LISTEN_FDS") != "1":
        return None
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        environment.pop(name, None)
    os.set_inheritable(_FIRST_FD, False)
    return socket.socket(fileno=_FIRST_FD)


def watchdog_seconds(environment: MutableMapping[str, str] = os.environ) -> float | None:
    """Return the seconds between watchdog notifications, half of systemd's limit; None if systemd expects none."""
    microseconds = environment.get("WATCHDOG_USEC")
    ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 1e6 / 2 if microseconds and ours else None


class Watchdog:
    """Sender of watchdog notifications: one after each successful run of a tiny program on the devices.

    Without notifications, systemd restarts the daemon. The program runs in its own thread, and may have to wait for a
    client's long computation on the same device. While the program runs, the daemon therefore counts as healthy as long
    as it has clients.

    Args:
        every: seconds from one run to the next.
        beat: runs the program; raises an exception if the program fails.
        has_clients: returns whether the daemon has clients.
    """

    def __init__(self, every: float, beat: Callable[[], None], has_clients: Callable[[], bool]) -> None:
        self._every = every
        self._beat = beat
        self._has_clients = has_clients
        self._started = time.monotonic() - every
        self._thread = Thread(self._run, "watchdog")

    def tick(self) -> None:
        """Send a notification or start the next run if one is due. The daemon's main thread calls this method often."""
        if self._thread.is_alive():
            if self._has_clients():
                notify("WATCHDOG=1")
        elif time.monotonic() - self._started >= self._every:
            self._started = time.monotonic()
            self._thread = Thread(self._run, "watchdog")
            try:
                self._thread.start()
            except RuntimeError as error:
                log.warning(
                    "watchdog: cannot start a thread (%s). If this persists, systemd restarts the daemon.", error
                )

    def _run(self) -> None:
        try:
            self._beat()
        except Exception:
            log.exception(
                "watchdog: the health check of the devices failed. If this persists, systemd restarts the daemon."
            )
        else:
            notify("WATCHDOG=1")
