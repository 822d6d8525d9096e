"""All sessions of a daemon, by token."""

import dataclasses
import logging
import threading
import time

from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.sessions.presence import SPARED_SECONDS
from jitserver.daemon.sessions.session import Session

log = logging.getLogger(__name__)


@dataclasses.dataclass
class Sessions:
    """The live sessions, and why sessions of the previous daemon were lost. Thread-safe."""

    by_token: dict[bytes, Session] = dataclasses.field(default_factory=dict)
    lost: dict[bytes, str] = dataclasses.field(default_factory=dict)  # the reasons
    last_change: float = dataclasses.field(default_factory=time.monotonic)
    budget: ArrayBudget = dataclasses.field(default_factory=ArrayBudget)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def resume(self, token: bytes, pid: int) -> tuple[Session, int] | None:
        """Attaches a connection to the session of a token; returns it with the connection's first handle."""
        with self._lock:
            session = self.by_token.get(token)
        if session is None:
            return None
        session.load()
        first = session.attach(pid)
        return (session, first) if first is not None else None

    def begin(self, pid: int) -> tuple[Session, int]:
        """Begins a session for a connection; returns it with the connection's first handle."""
        session = Session(pid, self.budget)
        first = session.attach(pid)
        assert first is not None
        with self._lock:
            self.by_token[session.token] = session
            self.last_change = time.monotonic()
        return session, first

    def leave(self, session: Session, pid: int) -> None:
        """After a connection of the session broke: ends the session unless its client reconnects in time."""
        if not session.presence.detach(pid) and not session.ended:
            log.info("the session of %s ends: its client did not reconnect", session.client)
            self.end(session)

    def part(self, session: Session) -> None:
        """After the client said goodbye: ends the session if no other process is connected."""
        if session.presence.part():
            self.end(session)

    def end_orphans(self) -> None:
        """Ends the sessions whose clients died, even during a call, or have been away for too long."""
        for session in self.all():
            if session.presence.is_orphaned():
                self._end_missed(session, "longer than the daemon waits")

    def end_longest_missed(self) -> bool:
        """Ends the session whose client has been away longest, to free its arrays; False if there is none to end."""
        missed = max((session for session in self.all() if session.arrays), key=_missed, default=None)
        if missed is None or not missed.presence.give_up(SPARED_SECONDS):
            return False
        self._end_missed(missed, "and other programs needed the memory")
        return True

    def _end_missed(self, session: Session, why: str) -> None:
        if hours := _missed(session) / 3600:
            why = f"this program was not connected for {hours:.1f} h, {why}: `jitclient.keep` keeps arrays for longer"
            self.lost[session.token] = why
        log.info("the session of %s ends: %s", session.client, why if hours else "its client has ended")
        self.end(session)

    def end(self, session: Session) -> None:
        """Ends a session and frees its arrays."""
        with self._lock:
            if self.by_token.pop(session.token, None) is not None:
                self.last_change = time.monotonic()
        session.end()

    def restore(self, session: Session) -> None:
        """Add a session of the previous daemon."""
        with self._lock:
            self.by_token[session.token] = session

    def freeze(self) -> None:
        """Lets no Run begin any more."""
        for session in self.all():
            session.freeze()

    def end_all(self) -> None:
        """Ends all sessions."""
        for session in self.all():
            self.end(session)

    def all(self) -> list[Session]:
        """The live sessions."""
        with self._lock:
            return list(self.by_token.values())


def _missed(session: Session) -> float:
    return session.presence.missed()
