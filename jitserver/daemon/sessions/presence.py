"""Presence of a session's client: the process that began the session, and the processes with open connections to it."""

import threading
from collections.abc import Iterable
from time import monotonic

from jitserver.system.process_watch import Process, Watch, process_with_id

LINGER_SECONDS = 60.0
"""Seconds that a session outlives its last connection while its client lives."""

LINGER_REMOTELY_SECONDS = 86_400.0
"""The same limit for a client on another machine, which may be asleep or without network."""

MIN_ABSENCE_SECONDS = 600.0
"""Seconds without a connection after which such a session may be closed early, if its memory is needed."""

_POLL_SECONDS = 0.2


class Presence:
    """The client of a session, and the processes connected to it. Thread-safe.

    Attributes:
        ended: whether the session is over, so that no process can join it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False
        self._attached = 0
        self._client = Watch(pid)
        self._connected: list[int] = []
        self._expected: list[Watch] = []  # processes connected before a restart that have not yet reconnected
        # Time at which the last connection broke, if no thread waits for the next one.
        self._absent_since: float | None = None
        self._said_goodbye = False
        self._frozen = False
        self._changed = threading.Condition()

    @classmethod
    def restored(cls, client: Process, others: Iterable[Process], attached: int) -> "Presence":
        """Return the presence of a session that another daemon began.

        The session waits for its client as long as the client lives, because an idle client does not notice the
        restart. If the client's liveness cannot be determined, the time without a connection is limited.
        """
        presence = cls(0)
        presence.pid, presence._attached = client.pid, attached
        presence._client = Watch.restored(client)
        presence._expected = [Watch.restored(process) for process in others]
        if not client.born and not presence._client.has_exited():
            presence._absent_since = monotonic()
        return presence

    def attach(self, pid: int) -> int:
        """Add a connection of a process.

        Returns:
            The number of connections so far, including this one; 0 if the session is over.
        """
        with self._changed:
            if self.ended:
                return 0
            self._connected.append(pid)
            self._absent_since = None
            for watch in [watch for watch in self._expected if watch.pid == pid]:
                self._expected.remove(watch)
                watch.close()
            self._attached += 1
            self._changed.notify_all()
            return self._attached

    def detach(self, pid: int) -> bool:
        """Remove a broken connection of a process, and wait for the client to return.

        The wait is over if the client has died or said goodbye. A client on another machine may be absent for long, so
        no thread waits for it.

        Returns:
            Whether the session continues: other processes are connected, the client returned, or it may still return.
        """
        deadline = monotonic() + LINGER_SECONDS
        with self._changed:
            self._connected.remove(pid)
            if not (self.pid or self._connected or self._said_goodbye or self.ended):
                self._absent_since = monotonic()
                return True
            attached = self._attached
            while not self._connected and self._attached == attached and not self._frozen:
                left = deadline - monotonic()
                if self.ended or self._said_goodbye or left <= 0 or self._client.has_exited():
                    self.ended = True  # a client that returns now is too late
                    return False
                self._changed.wait(min(left, _POLL_SECONDS))
            return True

    def absent_seconds(self) -> float:
        """Return the seconds since the last connection broke of a client that may still return; otherwise 0."""
        since = self._absent_since
        return 0.0 if since is None else monotonic() - since

    def expire(self, min_seconds: float) -> bool:
        """Mark the session as over if its client has been absent for longer than `min_seconds` seconds.

        Returns:
            Whether the session is over.
        """
        with self._changed:
            if self.absent_seconds() > min_seconds:
                self.ended = True
            return self.ended

    def goodbye(self) -> bool:
        """Record the client's goodbye; return True if no other process is connected."""
        with self._changed:
            self._said_goodbye = True
            self._changed.notify_all()
            return len(self._connected) <= 1

    def is_connected(self) -> bool:
        """Return whether a process is connected now."""
        return bool(self._connected)

    def is_orphaned(self) -> bool:
        """Return whether the client is dead, or absent for too long, and no other process is connected or expected."""
        with self._changed:
            if self.absent_seconds() > (LINGER_SECONDS if self.pid else LINGER_REMOTELY_SECONDS):
                return True
            others = any(pid != self.pid for pid in self._connected)
            return self._client.has_exited() and not others and all(watch.has_exited() for watch in self._expected)

    def end(self) -> None:
        """Mark the session as over, and wake threads that wait for its client to return."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()
            for watch in (self._client, *self._expected):
                watch.close()

    def freeze(self) -> None:
        """Stop waiting for clients: from now on, the next daemon waits for the processes connected now."""
        with self._changed:
            self._frozen = True
            others = {*self._connected} - {self.pid} - {watch.pid for watch in self._expected}
            self._expected += map(Watch, others)

    def named(self) -> tuple[Process, tuple[Process, ...]]:
        """Return the client and the other processes in a form by which the next daemon can identify them."""
        with self._changed:
            client = Process(self.pid, "parted") if self._said_goodbye else process_with_id(self.pid)
            return client, tuple(process_with_id(watch.pid) for watch in self._expected)
