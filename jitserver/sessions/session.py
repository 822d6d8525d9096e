"""The daemon's side of a session: one client's arrays and the programs it uses, across its connections."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from jitclient.errors import ArrayLost, DaemonLost
from jitserver.arrays.absent import Away, Failed
from jitserver.arrays.budget import ArrayBudget
from jitserver.cache.entry import Entry
from jitserver.platform.process_watch import Process
from jitserver.sessions.presence import Presence
from jitserver.sessions.run_order import Order, began_here

log = logging.getLogger(__name__)

_HANDLES_PER_CONNECTION = 1 << 40

EntryOf = Callable[[str], Entry | None]
"""Has a program again that once had that call key."""


class State(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """What the daemon that follows must know of a session, beside its arrays."""

    token: bytes
    client: Process
    others: tuple[Process, ...]  # that were connected, or are still expected
    attached: int
    begun: dict[bytes, int]  # the last Run of each of its clients
    programs: tuple[tuple[str, bytes], ...]  # call keys and locations, by number


class Session:
    """Owns arrays by handle, and leases the programs it uses: what it holds, no eviction takes from under a call.

    Its client is the process that began it. Forked children of that process may join, and outstay it.
    """

    def __init__(self, pid: int, budget: ArrayBudget) -> None:
        self.token = secrets.token_bytes(16)
        self.pid = pid
        self.begun = time.monotonic()
        self.calls = 0
        self.budget = budget
        self.arrays: dict[int, Any] = {}
        self._orders: dict[bytes, Order] = {}
        self.unwanted: set[int] = set()
        """Handles that were dropped while a Run of a connection before may want or make them."""
        self.executables: list[Entry | str] = []  # one of before a restart is had again when it is called
        self._locations: list[bytes] = []
        self._numbers: dict[str, int] = {}
        self.presence = Presence(pid)
        self.attached = 0  # connections so far
        self.ended = False  # an attribute: each Run looks at it
        self._lock = threading.Lock()
        self._frozen = False
        self._away: Away | None = None
        self._loading = threading.Lock()
        self._entry_of: EntryOf = _none

    # ---- programs and arrays

    def lease(self, entry: Entry, locations: bytes) -> int:
        """The name under which this session calls a program, whose code its client has at `locations`."""
        with self._lock:
            number = self._numbers.get(entry.key)
            if number is None or self.executables[number] is not entry:
                number = self._numbers[entry.key] = len(self.executables)
                self.executables.append(entry)
                self._locations.append(locations)
                entry.holders.add(self)
            self._locations[number] = locations
            return number

    def executable(self, number: int) -> Entry:
        """The program of that name.

        Raises:
            IndexError: there is none.
            DaemonLost: it was one of the daemon before, and cannot be had again.
        """
        entry = self.executables[number]
        return self._had_again(number, entry) if isinstance(entry, str) else entry

    def _had_again(self, number: int, key: str) -> Entry:
        try:
            entry = self._entry_of(key)
        except Exception as error:  # a user's code may have run again
            log.warning("a program of before the restart cannot be made again", exc_info=True)
            raise DaemonLost(f"the daemon restarted, and cannot make the program again: {error}") from error
        if entry is None:
            log.warning("a program of before the restart is not in the cache: %s", key)
            raise DaemonLost("the daemon restarted, and the program is not in its cache any more")
        with self._lock:
            self.executables[number] = entry
            if not self.ended:
                entry.holders.add(self)
        return entry

    def leased(self) -> list[Entry]:
        """The programs that it uses."""
        return [entry for entry in list(self.executables) if isinstance(entry, Entry)]

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
            self.settle()
            found = self.arrays.get(handle)
        if found is None:
            raise ArrayLost(
                f"the daemon holds no array under handle {handle}: the call that makes it failed or was lost"
            )
        if type(found) is Failed:
            raise Failed(found.failure)  # not itself, which would gather tracebacks
        return found

    def forget(self, handles: Iterable[int]) -> None:
        """Frees arrays, at the latest at the end of a Run; those that it does not hold are none of its concern."""
        if self.attached > 1 and self.is_unsettled():
            # A Run of a connection before knows no handle of this one, and may have yet to look at any other.
            first = self.attached * _HANDLES_PER_CONNECTION
            handles = list(handles)
            with self._lock:
                self.unwanted.update([handle for handle in handles if handle < first])
            handles = [handle for handle in handles if handle >= first]
        for handle in handles:
            self.arrays.pop(handle, None)

    def forget_unwanted(self) -> None:
        """At the end of a Run: frees what no Run that is under way needs any more."""
        if not self.is_unsettled():
            with self._lock:
                unwanted, self.unwanted = self.unwanted, set()
            self.forget(unwanted)

    def keep(self, first: int, results: Iterable[Any]) -> None:
        """Holds the results of a call under consecutive handles."""
        arrays = self.arrays
        for handle, result in enumerate(results, first):
            arrays[handle] = result

    def held(self) -> list[Any]:
        """The arrays that it owns, each once for each handle."""
        held = [array for array in list(self.arrays.values()) if type(array) is not Failed]
        return [array for array in held if not array.is_deleted()]

    def identities(self) -> set[int | str]:
        """What its arrays are known by, for comparison with those of names; see `Away`."""
        away = self._away
        return {*map(id, self.held()), *(away.identities() if away is not None else ())}

    def array_bytes(self) -> int:
        """Bytes of the arrays that it owns."""
        return sum(array.nbytes for array in self.held())

    # ---- the order of its clients' Runs

    def order(self, client: bytes) -> Order:
        """That of one client: the process that began the session, or one that joined it."""
        with self._lock:
            order = self._orders.setdefault(client, Order())
            if self._frozen:
                order.freeze()
            return order

    def is_unsettled(self) -> bool:
        """Whether a connection of before is at a Run that began before that of this thread."""
        orders = list(self._orders.values())
        here = began_here(orders)
        return any(order.has_older(here) for order in orders)

    def settle(self) -> None:
        """Waits until no connection of before is at a Run that began before that of this thread."""
        orders = list(self._orders.values())
        here = began_here(orders)
        for order in orders:
            order.settle(here)

    # ---- connections

    def attach(self, pid: int) -> int | None:
        """Joins a connection of that process; returns the first handle that it may name, or None: it came too late."""
        with self._lock:
            attached = self.presence.attach(pid)
            if not attached:
                return None
            self.attached = attached
            return attached * _HANDLES_PER_CONNECTION

    def end(self) -> None:
        """Frees what it owns. Whoever waits for its client to come back is told."""
        with self._lock:
            self.ended = True
            self.presence.end()
            self.arrays.clear()
            for entry in self.leased():
                entry.holders.discard(self)
            away, self._away = self._away, None
        if away is not None:
            away.discard()

    # ---- from one daemon to the next

    def freeze(self) -> None:
        """From now on no Run begins, on whatever connection: the next daemon gets those that are still to come."""
        with self._lock:
            self._frozen = True
            for order in self._orders.values():
                order.freeze()
            self.presence.freeze()

    def is_away(self) -> bool:
        """Whether its arrays are still on the disk. Waits while they are read."""
        with self._loading:
            return self._away is not None

    def leave_behind(self) -> tuple[State, dict[int, Any]]:
        """What the next daemon needs of a frozen session, and its arrays, which are its own no more."""
        with self._lock:
            arrays, self.arrays = self.arrays, {}
            for handle in self.unwanted:  # by a Run that did not end in time
                arrays.pop(handle, None)
            keys = [entry if isinstance(entry, str) else entry.key for entry in self.executables]
            client, others = self.presence.named()
            state = State(
                token=self.token,
                client=client,
                others=others,
                attached=self.attached,
                begun={client: order.freeze() for client, order in self._orders.items()},
                programs=tuple(zip(keys, self._locations, strict=True)),
            )
            return state, arrays

    @classmethod
    def taken_back(cls, state: State, away: Away, entry_of: EntryOf, budget: ArrayBudget) -> "Session":
        """The session of another daemon."""
        session = cls(0, budget)
        session.token, session.pid = state.token, state.client.pid
        session.presence = Presence.again(state.client, state.others, state.attached)
        session.attached = state.attached
        session._orders = {client: Order(begun) for client, begun in state.begun.items()}
        session.executables = [key for key, _ in state.programs]
        session._locations = [locations for _, locations in state.programs]
        session._away, session._entry_of = away, entry_of
        return session

    def load(self) -> None:
        """Read its arrays, if they are still on the disk."""
        with self._loading:
            away = self._away
            if away is not None:
                self.arrays.update(away.load())
                away.discard()
                self._away = None


def _none(key: str) -> Entry | None:
    return None
