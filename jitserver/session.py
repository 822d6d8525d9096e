"""The daemon's side of a session: one client's arrays and the programs it uses, across its connections."""

import dataclasses
import os
import secrets
import select
import threading
import time
from collections.abc import Iterable
from typing import Any

from jitclient.errors import ArrayLost
from jitclient.wire.messages import Failure
from jitserver.cache.entry import Entry
from jitserver.order import Order
from jitserver.room import Room

LINGER_SECONDS = 60.0
"""How long a session outlives its last connection while its client lives."""

_HANDLES_PER_CONNECTION = 1 << 40
_POLL_SECONDS = 0.2


class Failed(Exception):  # noqa: N818
    """Stands for the results of a call that failed, as what all that is made of them fails with."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Session:
    """Owns arrays by handle, and leases the programs it uses: what it holds, no eviction takes from under a call.

    Its client is the process that began it. Forked children of that process may join, and outstay it.
    """

    def __init__(self, pid: int, room: Room) -> None:
        self.token = secrets.token_bytes(16)
        self.pid = pid
        self.begun = time.monotonic()
        self.calls = 0
        self.room = room
        self.arrays: dict[int, Any] = {}
        self._orders: dict[bytes, Order] = {}
        self._unwanted: set[int] = set()  # dropped before the call that makes them had ended
        self._executables: list[Entry] = []
        self._locations: list[bytes] = []
        self._numbers: dict[str, int] = {}
        self._client: int | None = None
        self._connected: list[int] = []  # the processes at the other ends of its connections
        self._attached = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._parted = False
        self._ended = False
        self._client_is_dead()  # watches it from now on

    # ---- programs and arrays

    def lease(self, entry: Entry, locations: bytes) -> int:
        """The name under which this session calls a program, whose code its client has at `locations`."""
        with self._lock:
            number = self._numbers.get(entry.key)
            if number is None or self._executables[number] is not entry:
                number = self._numbers[entry.key] = len(self._executables)
                self._executables.append(entry)
                self._locations.append(locations)
                entry.holders.add(self)
            self._locations[number] = locations
            return number

    def executable(self, number: int) -> Entry:
        """The program of that name."""
        return self._executables[number]

    def leased(self) -> list[Entry]:
        """The programs that it uses."""
        return list(self._executables)

    def locations(self, number: int) -> bytes:
        """Where the client has the code of that program."""
        return self._locations[number]

    def array(self, handle: int) -> Any:
        """The array of that handle.

        Raises:
            ArrayLost: there is none.
            Failed: the call that makes it failed.
        """
        found = self.arrays.get(handle)
        if found is None:
            self._settle()
            found = self.arrays.get(handle)
        if found is None:
            raise ArrayLost(
                f"the daemon holds no array under handle {handle}: the call that makes it failed or was lost"
            )
        if type(found) is Failed:
            raise Failed(found.failure)  # not itself, which would gather tracebacks
        return found

    def forget(self, handles: Iterable[int]) -> None:
        """Frees arrays; those that it does not hold are none of its concern."""
        for handle in handles:
            if self.arrays.pop(handle, None) is None and self._is_unsettled():
                self._unwanted.add(handle)

    def keep(self, first: int, results: Iterable[Any]) -> None:
        """Holds the results of a call under consecutive handles."""
        arrays = self.arrays
        for handle, result in enumerate(results, first):
            arrays[handle] = result
        if self._unwanted:
            self.forget(self._unwanted.intersection(arrays))

    def held(self) -> list[Any]:
        """The arrays that it owns, each once for each handle."""
        held = [array for array in list(self.arrays.values()) if type(array) is not Failed]
        return [array for array in held if not array.is_deleted()]

    def array_bytes(self) -> int:
        """Bytes of the arrays that it owns."""
        return sum(array.nbytes for array in self.held())

    # ---- the order of its clients' Runs

    def order(self, client: bytes) -> Order:
        """That of one client: the process that began the session, or one that joined it."""
        with self._lock:
            return self._orders.setdefault(client, Order())

    def _is_unsettled(self) -> bool:
        return any(order.is_unsettled() for order in list(self._orders.values()))

    def _settle(self) -> None:
        for order in list(self._orders.values()):
            order.settle()

    # ---- connections

    def attach(self, pid: int) -> int | None:
        """Joins a connection of that process; returns the first handle that it may name, or None: it came too late."""
        with self._lock:
            if self._ended:
                return None
            self._connected.append(pid)
            self._attached += 1
            self._changed.notify_all()
            return self._attached * _HANDLES_PER_CONNECTION

    def outlives(self, pid: int) -> bool:
        """A connection of that process broke: whether the session lives on, for others or because its client returns.

        Waits for that return, unless the client died or said goodbye.
        """
        deadline = time.monotonic() + LINGER_SECONDS
        with self._lock:
            self._connected.remove(pid)
            attached = self._attached
            while not self._connected and self._attached == attached:
                left = deadline - time.monotonic()
                if self._ended or self._parted or left <= 0 or self._client_is_dead():
                    self._ended = True  # whoever returns now is too late
                    return False
                self._changed.wait(min(left, _POLL_SECONDS))
            return True

    def part(self) -> bool:
        """Its client said goodbye; True if nobody else is connected."""
        with self._lock:
            self._parted = True
            self._changed.notify_all()
            return len(self._connected) <= 1

    def is_orphaned(self) -> bool:
        """Whether its client is dead, and nobody else is connected."""
        with self._lock:
            return self._client_is_dead() and not any(pid != self.pid for pid in self._connected)

    def end(self) -> None:
        """Frees what it owns. Whoever waits for its client to come back is told."""
        with self._lock:
            self._ended = True
            self.arrays.clear()
            for entry in self._executables:
                entry.holders.discard(self)
            self._changed.notify_all()
            if self._client is not None:
                os.close(self._client)
                self._client = None

    @property
    def ended(self) -> bool:
        """Whether it was ended."""
        return self._ended

    def _client_is_dead(self) -> bool:
        if self._client is None and not self._ended:
            try:
                self._client = _pidfd_of(self.pid)  # also later, when there are descriptors again
            except ProcessLookupError:
                return True
        if self._client is None:
            return False
        poller = select.poll()
        poller.register(self._client, select.POLLIN)
        return bool(poller.poll(0))


@dataclasses.dataclass
class Sessions:
    """All sessions, by token."""

    by_token: dict[bytes, Session] = dataclasses.field(default_factory=dict)
    last_change: float = dataclasses.field(default_factory=time.monotonic)
    room: Room = dataclasses.field(default_factory=Room)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def resume(self, token: bytes, pid: int) -> tuple[Session, int] | None:
        """Joins a connection to the session of that token; returns it with the connection's first handle."""
        with self._lock:
            session = self.by_token.get(token)
        first = session.attach(pid) if session is not None else None
        return (session, first) if session is not None and first is not None else None

    def begin(self, pid: int) -> tuple[Session, int]:
        """A new session for a connection; returns it with the connection's first handle."""
        session = Session(pid, self.room)
        first = session.attach(pid)
        assert first is not None
        with self._lock:
            self.by_token[session.token] = session
            self.last_change = time.monotonic()
        return session, first

    def leave(self, session: Session, pid: int) -> None:
        """A connection of the session broke: frees the session unless its client comes back in time."""
        if not session.outlives(pid):
            self.end(session)

    def part(self, session: Session) -> None:
        """The client of a session will not come back: frees the session once nobody else is connected."""
        if session.part():
            self.end(session)

    def end_orphans(self) -> None:
        """Frees the sessions whose clients died, also those for which a call is still under way."""
        for session in self.all():
            if session.is_orphaned():
                self.end(session)

    def end(self, session: Session) -> None:
        """Forgets a session and frees what it owns."""
        with self._lock:
            if self.by_token.pop(session.token, None) is not None:
                self.last_change = time.monotonic()
        session.end()

    def all(self) -> list[Session]:
        """Those that live."""
        with self._lock:
            return list(self.by_token.values())


def _pidfd_of(pid: int) -> int | None:
    """A descriptor that tells when a process of this machine ends; None where it cannot be had.

    Raises:
        ProcessLookupError: it has ended.
    """
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None
