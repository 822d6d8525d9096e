"""The registry of all sessions of a daemon, by token."""

import dataclasses
import logging
import threading
import time

from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.sessions.presence import MIN_ABSENCE_SECONDS
from jitserver.daemon.sessions.session import DaemonSession

log = logging.getLogger(__name__)

_MAX_LOST = 1000
"""Maximum number of sessions whose loss is remembered: their clients may come back to hear the reason."""


@dataclasses.dataclass
class Sessions:
    """The live sessions, and the reasons why earlier sessions were lost. Thread-safe."""

    by_token: dict[bytes, DaemonSession] = dataclasses.field(default_factory=dict)
    lost: dict[bytes, str] = dataclasses.field(default_factory=dict)  # the reasons, by token
    last_change: float = dataclasses.field(default_factory=time.monotonic)
    budget: ArrayBudget = dataclasses.field(default_factory=ArrayBudget)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def resume(self, token: bytes, pid: int) -> tuple[DaemonSession, int] | None:
        """Attach a connection to the session of a token.

        Returns:
            The session and the connection's first handle; None if there is no such session, or it is over.
        """
        with self._lock:
            session = self.by_token.get(token)
        if session is None:
            return None
        session.load()
        first = session.attach(pid)
        return (session, first) if first is not None else None

    def begin(self, pid: int) -> tuple[DaemonSession, int]:
        """Begin a session for a connection; return it with the connection's first handle."""
        session = DaemonSession(pid, self.budget)
        first = session.attach(pid)
        assert first is not None
        with self._lock:
            self.by_token[session.token] = session
            self.last_change = time.monotonic()
        return session, first

    def leave(self, session: DaemonSession, pid: int) -> None:
        """Handle a broken connection of a session: close the session unless its client may reconnect."""
        if not session.presence.detach(pid) and not session.ended:
            log.info("closed the session of %s (its client has left)", session.client)
            self.end(session)

    def goodbye(self, session: DaemonSession) -> None:
        """Handle the client's goodbye: close the session if no other process is connected."""
        if session.presence.goodbye():
            self.end(session)

    def end_orphans(self) -> None:
        """Close the sessions whose clients died, even during a call, or have been absent for too long."""
        for session in self.all():
            if session.presence.expire_orphan():
                self._end_absent(session, "longer than the daemon waits")

    def end_longest_absent(self, memory: int | None = None) -> bool:
        """Close the session whose client has been absent longest, to free its arrays; return False if there is none.

        With a `memory`, only sessions with arrays in that memory count.
        """
        held = [session for session in self.all() if session.arrays]
        held = [session for session in held if memory is None or session.has_arrays_in(memory)]
        absent = max(held, key=_absent_seconds, default=None)
        if absent is None or not absent.presence.expire(MIN_ABSENCE_SECONDS):
            return False
        self._end_absent(absent, "and other programs needed the memory")
        return True

    def limit_absent(self, max_count: int) -> None:
        """Close sessions of absent clients beyond a number of them: first those whose clients would miss no array."""
        absent = [session for session in self.all() if not session.presence.is_connected()]
        absent.sort(key=lambda session: (bool(session.arrays) or session.is_on_disk(), -_absent_seconds(session)))
        for session in absent[: max(0, len(absent) - max_count)]:
            if session.presence.expire(0):
                self._end_absent(session, "and too many other programs were not connected either")

    def _end_absent(self, session: DaemonSession, why: str) -> None:
        if session.presence.has_exited():
            why = "its client has exited"
        else:
            absence = session.presence.absence()
            why = f"this program was not connected for {absence}, {why}: `jitclient.keep` keeps arrays for longer"
            with self._lock:
                self.lost[session.token] = why
                for token in list(self.lost)[:-_MAX_LOST]:
                    del self.lost[token]
        log.info("closed the session of %s (%s)", session.client, why)
        self.end(session)

    def end(self, session: DaemonSession) -> None:
        """Close a session and free its arrays."""
        with self._lock:
            if self.by_token.pop(session.token, None) is not None:
                self.last_change = time.monotonic()
        session.end()

    def restore(self, session: DaemonSession) -> None:
        """Add a session of the previous daemon."""
        with self._lock:
            self.by_token[session.token] = session

    def freeze(self) -> None:
        """Keep all sessions from beginning further Runs."""
        for session in self.all():
            session.freeze()

    def end_all(self) -> None:
        """Close all sessions of the daemon."""
        for session in self.all():
            self.end(session)

    def all(self) -> list[DaemonSession]:
        """Return the live sessions."""
        with self._lock:
            return list(self.by_token.values())


def _absent_seconds(session: DaemonSession) -> float:
    return session.presence.absent_seconds()
