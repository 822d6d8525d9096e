"""Who is there of a session: the process that began it, and those at the other ends of its connections."""

import threading
from collections.abc import Iterable
from time import monotonic

from jitserver.system.process_watch import Process, Watch, named

LINGER_SECONDS = 60.0
"""How long a session outlives its last connection while its client lives."""

LINGER_REMOTELY_SECONDS = 86_400.0
"""The same for a client on another machine: it may live, asleep or without its network."""

SPARED_SECONDS = 600.0
"""After so long without a connection, such a session ends earlier if its memory is needed."""

_POLL_SECONDS = 0.2


class Presence:
    """The client of a session, and who is connected. Safe to use from threads.

    Attributes:
        ended: whether the session is over; nobody joins it any more.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False
        self._attached = 0
        self._client = Watch(pid)
        self._connected: list[int] = []
        self._expected: list[Watch] = []  # who was connected before a restart, and is not yet again
        self._missed_since: float | None = None  # when the last connection broke, if no thread waits for the next one
        self._parted = False
        self._frozen = False
        self._changed = threading.Condition()

    @classmethod
    def again(cls, client: Process, others: Iterable[Process], attached: int) -> "Presence":
        """That of another daemon's session. It waits for its client as long as that lives, if that can be known: nobody
        told the client that it is missed.
        """
        presence = cls(0)
        presence.pid, presence._attached = client.pid, attached
        presence._client = Watch.again(client)
        presence._expected = [Watch.again(process) for process in others]
        if not client.born and not presence._client.is_over():
            presence._missed_since = monotonic()
        return presence

    def attach(self, pid: int) -> int:
        """Joins a connection of that process; returns how many that makes so far, or 0: it came too late."""
        with self._changed:
            if self.ended:
                return 0
            self._connected.append(pid)
            self._missed_since = None
            for watch in [watch for watch in self._expected if watch.pid == pid]:
                self._expected.remove(watch)
                watch.close()
            self._attached += 1
            self._changed.notify_all()
            return self._attached

    def detach(self, pid: int) -> bool:
        """A connection of that process broke: waits for its client to return, unless that died or said goodbye. One on
        another machine may be away for long, so no thread waits for it.

        Returns:
            Whether the session lives on, for others or because its client returned, or may do so.
        """
        deadline = monotonic() + LINGER_SECONDS
        with self._changed:
            self._connected.remove(pid)
            if not (self.pid or self._connected or self._parted or self.ended):
                self._missed_since = monotonic()
                return True
            attached = self._attached
            while not self._connected and self._attached == attached and not self._frozen:
                left = deadline - monotonic()
                if self.ended or self._parted or left <= 0 or self._client.is_over():
                    self.ended = True  # whoever returns now is too late
                    return False
                self._changed.wait(min(left, _POLL_SECONDS))
            return True

    def missed(self) -> float:
        """Seconds since the last connection of a client broke that may yet return."""
        since = self._missed_since
        return 0.0 if since is None else monotonic() - since

    def give_up(self, spared: float) -> bool:
        """End the session if its client has been missed for longer than that."""
        with self._changed:
            if self.missed() > spared:
                self.ended = True
            return self.ended

    def part(self) -> bool:
        """The client said goodbye; True if nobody else is connected."""
        with self._changed:
            self._parted = True
            self._changed.notify_all()
            return len(self._connected) <= 1

    def is_connected(self) -> bool:
        """Whether a process is, now."""
        return bool(self._connected)

    def is_orphaned(self) -> bool:
        """Whether the client is dead, and nobody else is connected or expected."""
        with self._changed:
            if self.missed() > (LINGER_SECONDS if self.pid else LINGER_REMOTELY_SECONDS):
                return True
            others = any(pid != self.pid for pid in self._connected)
            return self._client.is_over() and not others and all(watch.is_over() for watch in self._expected)

    def end(self) -> None:
        """The session is over. Whoever waits for its client to come back is told."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()
            for watch in (self._client, *self._expected):
                watch.close()

    def freeze(self) -> None:
        """From now on it is the next daemon that waits for whoever is connected."""
        with self._changed:
            self._frozen = True
            others = {*self._connected} - {self.pid} - {watch.pid for watch in self._expected}
            self._expected += map(Watch, others)

    def named(self) -> tuple[Process, tuple[Process, ...]]:
        """The client and the others, as the next daemon can know them."""
        with self._changed:
            client = Process(self.pid, "parted") if self._parted else named(self.pid)
            return client, tuple(named(watch.pid) for watch in self._expected)
