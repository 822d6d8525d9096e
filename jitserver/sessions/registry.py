"""All sessions of a daemon, by token."""

import dataclasses
import logging
import threading
import time

from jitserver.arrays.budget import ArrayBudget
from jitserver.sessions.session import Session

log = logging.getLogger(__name__)


@dataclasses.dataclass
class Sessions:
    """Those that live, and why others of the daemon before are lost. Safe to use from threads."""

    by_token: dict[bytes, Session] = dataclasses.field(default_factory=dict)
    lost: dict[bytes, str] = dataclasses.field(default_factory=dict)  # and why
    last_change: float = dataclasses.field(default_factory=time.monotonic)
    budget: ArrayBudget = dataclasses.field(default_factory=ArrayBudget)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def resume(self, token: bytes, pid: int) -> tuple[Session, int] | None:
        """Joins a connection to the session of that token; returns it with the connection's first handle."""
        with self._lock:
            session = self.by_token.get(token)
        if session is None:
            return None
        session.load()
        first = session.attach(pid)
        return (session, first) if first is not None else None

    def begin(self, pid: int) -> tuple[Session, int]:
        """A new session for a connection; returns it with the connection's first handle."""
        session = Session(pid, self.budget)
        first = session.attach(pid)
        assert first is not None
        with self._lock:
            self.by_token[session.token] = session
            self.last_change = time.monotonic()
        return session, first

    def leave(self, session: Session, pid: int) -> None:
        """A connection of the session broke: frees the session unless its client comes back in time."""
        if not session.presence.detach(pid):
            log.info("the session of process %d ends: its client has gone", session.pid)
            self.end(session)

    def part(self, session: Session) -> None:
        """The client of a session will not come back: frees the session once nobody else is connected."""
        if session.presence.part():
            self.end(session)

    def end_orphans(self) -> None:
        """Frees the sessions whose clients died, also those for which a call is still under way."""
        for session in self.all():
            if session.presence.is_orphaned():
                log.info("the session of process %d ends: its client has ended", session.pid)
                self.end(session)

    def end(self, session: Session) -> None:
        """Forgets a session and frees what it owns."""
        with self._lock:
            if self.by_token.pop(session.token, None) is not None:
                self.last_change = time.monotonic()
        session.end()

    def take_back(self, session: Session) -> None:
        """Add a session of the previous daemon."""
        with self._lock:
            self.by_token[session.token] = session

    def freeze(self) -> None:
        """From now on no Run begins."""
        for session in self.all():
            session.freeze()

    def end_all(self) -> None:
        """Forgets all."""
        for session in self.all():
            self.end(session)

    def all(self) -> list[Session]:
        """Those that live."""
        with self._lock:
            return list(self.by_token.values())
