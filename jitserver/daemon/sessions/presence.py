"""Presence of a session's client: the process that began the session, and the processes with open connections to it."""

import threading
from collections.abc import Iterable
from time import monotonic

from jitserver.system.process_watch import Process, ProcessWatch, process_with_id

LINGER_SECONDS = 60.0
"""Seconds that a session outlives its last connection while its client lives."""

LINGER_REMOTELY_SECONDS = 86_400.0
"""The same limit for a client on another machine, which may be asleep or without network."""

MIN_ABSENCE_SECONDS = 600.0
"""Seconds without a connection after which such a session may be closed early, if its memory is needed."""


class Presence:
    """The client of a session, and the processes connected to it. Thread-safe.

    Attributes:
        ended: whether the session is over, so that no process can join it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False
        self._attached = 0
        self._client = ProcessWatch(pid)
        self._connected: list[int] = []
        self._expected: list[ProcessWatch] = []  # processes connected before a restart that have not yet reconnected
        self._absent_since: float | None = None  # the time at which the last connection broke
        self._said_goodbye = False
        self._frozen = False
        self._lock = threading.Lock()

    @classmethod
    def restored(cls, client: Process, others: Iterable[Process], attached: int) -> "Presence":
        """Return the presence of a session that another daemon began.

        The session waits for its client as long as the client lives, because an idle client does not notice the
        restart. If the client's liveness cannot be determined, the time without a connection is limited.
        """
        presence = cls(0)
        presence.pid, presence._attached = client.pid, attached
        presence._client = ProcessWatch.restored(client)
        presence._expected = [ProcessWatch.restored(process) for process in others]
        if not client.born and not presence._client.has_exited():
            presence._absent_since = monotonic()
        return presence

    def attach(self, pid: int) -> int:
        """Add a connection of a process.

        Returns:
            The number of connections so far, including this one; 0 if the session is over.
        """
        with self._lock:
            if self.ended:
                return 0
            self._connected.append(pid)
            self._absent_since = None
            for watch in [watch for watch in self._expected if watch.pid == pid]:
                self._expected.remove(watch)
                watch.close()
            self._attached += 1
            return self._attached

    def detach(self, pid: int) -> bool:
        """Remove a broken connection of a process.

        Returns:
            Whether the session continues: other processes are connected, or the client may return. It may not if it
            has died or said goodbye.
        """
        with self._lock:
            self._connected.remove(pid)
            if self._connected or self._frozen:
                return True
            if self.ended or self._said_goodbye or self._client.has_exited():
                self.ended = True
                return False
            self._absent_since = monotonic()
            return True

    def absent_seconds(self) -> float:
        """Return the seconds since the last connection broke of a client that may still return; otherwise 0."""
        since = self._absent_since
        return 0.0 if since is None else monotonic() - since

    def absence(self) -> str:
        """Return the time since then as text; empty if the client is connected."""
        seconds = self.absent_seconds()
        return f"{seconds / 3600:.1f} h" if seconds >= 360 else f"{seconds:.0f} s" if seconds else ""

    def expire(self, min_seconds: float) -> bool:
        """Mark the session as over if its client has been absent for longer than `min_seconds` seconds.

        Returns:
            Whether the session is over.
        """
        with self._lock:
            if self.absent_seconds() > min_seconds:
                self.ended = True
            return self.ended

    def goodbye(self) -> bool:
        """Record the client's goodbye; return True if no other process is connected."""
        with self._lock:
            self._said_goodbye = True
            return len(self._connected) <= 1

    def is_connected(self) -> bool:
        """Return whether a process is connected now."""
        return bool(self._connected)

    def expire_orphan(self) -> bool:
        """Mark the session as over if its client is dead, or absent for too long, and no other process is connected or
        expected.

        Returns:
            Whether the session is over.
        """
        with self._lock:
            if self.absent_seconds() > (LINGER_SECONDS if self.pid else LINGER_REMOTELY_SECONDS):
                self.ended = True
            others = any(pid != self.pid for pid in self._connected)
            if self._client.has_exited() and not others and all(watch.has_exited() for watch in self._expected):
                self.ended = True
            return self.ended

    def has_exited(self) -> bool:
        """Return whether the client is dead."""
        return self._client.has_exited()

    def end(self) -> None:
        """Mark the session as over."""
        with self._lock:
            self.ended = True
            for watch in (self._client, *self._expected):
                watch.close()

    def freeze(self) -> None:
        """Leave it to the next daemon to end the session: it waits for the processes that are connected now."""
        with self._lock:
            self._frozen = True
            others = {*self._connected} - {self.pid} - {watch.pid for watch in self._expected}
            self._expected += map(ProcessWatch, others)

    def named(self) -> tuple[Process, tuple[Process, ...]]:
        """Return the client and the other processes in a form by which the next daemon can identify them."""
        with self._lock:
            client = Process(self.pid, "parted") if self._said_goodbye else process_with_id(self.pid)
            return client, tuple(process_with_id(watch.pid) for watch in self._expected)
