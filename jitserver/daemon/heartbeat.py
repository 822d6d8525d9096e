"""The daemon's heartbeat: sends BUSY to waiting clients, and detects dead clients."""

import logging
import threading

from jitclient.core.threads import Thread
from jitserver.daemon.connection import DaemonConnection
from jitserver.daemon.sessions.registry import Sessions
from jitserver.programs.traces.ambient_reads import monotonic

log = logging.getLogger(__name__)


class Heartbeat:
    """A thread that sends BUSY for slow answers, and closes the sessions of dead clients, every second."""

    SECONDS = 1.0

    def __init__(self, sessions: Sessions) -> None:
        self.connections: set[DaemonConnection] = set()
        self._sessions = sessions
        self._stopped = threading.Event()
        self.thread = Thread(self._beat, "heartbeat")

    def stop(self) -> None:
        """Stop the thread, and wait for its exit for at most the duration of one beat."""
        self._stopped.set()
        self.thread.join(self.SECONDS)

    def working(self) -> int:
        """Return the number of clients that wait for an answer now."""
        return sum(connection.has_waiting_client() for connection in list(self.connections))

    def _beat(self) -> None:
        while not self._stopped.wait(self.SECONDS):
            try:
                self._send_busy()
                self._sessions.end_orphans()
            except Exception:  # without BUSY, clients time out during healthy calls
                log.exception("heartbeat: a beat failed")

    def _send_busy(self) -> None:
        now = monotonic()
        for connection in list(self.connections):
            since = connection.busy_since
            if since is not None and now - since >= self.SECONDS / 2:
                connection.send_busy(since, now)
