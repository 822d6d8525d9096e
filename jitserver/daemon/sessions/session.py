"""The daemon's side of a session: one client's arrays and programs, across its connections."""

import collections
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from jitclient.errors import ArrayLost, DaemonLost, ProgramLost
from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.arrays.on_disk import OnDisk
from jitserver.daemon.sessions.presence import Presence
from jitserver.daemon.sessions.run_order import Active, Order
from jitserver.programs.devices.memories import bytes_of
from jitserver.programs.exceptions import Failed
from jitserver.store.entry import Entry
from jitserver.system.process_watch import Process, has_exited

log = logging.getLogger(__name__)

_HANDLES_PER_CONNECTION = 1 << 40
_BEFORE = -1
"""Number of the programs whose results are from before a restart."""

EntryOf = Callable[[str], Entry | None]
"""Function that returns the program of a call key, or makes it again; None if it is unknown."""


class SessionState(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The data about a session, apart from its arrays, that is saved for the next daemon."""

    token: bytes
    client: Process
    others: tuple[Process, ...]  # other processes that were connected or expected
    attached: int
    begun: dict[bytes, int]  # the number of the last begun Run of each client
    programs: tuple[str, ...]  # call keys, by number


class DaemonSession:
    """The arrays of a client by handle, and the programs it uses, so that eviction cannot free them during a call.

    The client is the process that began the session. Forked children of that process may join, and outlive it.
    """

    def __init__(self, pid: int, budget: ArrayBudget) -> None:
        self.token = secrets.token_bytes(16)
        self.pid = pid
        self.program = ""
        """The name of the client's program, if the client is on another machine."""
        self.begun = time.monotonic()
        self.calls = 0
        self.call_seconds = 0.0
        self.moved_in = 0  # programs that the client runs itself
        self.budget = budget
        self.arrays: dict[int, Any] = {}
        # The program that made each array, by handle; arrays that were put have none.
        self.makers: dict[int, int] = {}
        self.active = Active()
        self._orders: dict[bytes, Order] = {}  # by client
        self.pending_drops: set[int] = set()
        """Handles that were dropped while a Run of an earlier connection may still read or make their arrays."""
        # Programs by number; after a restart, call keys until the programs are called. Empty after a release.
        self.executables: list[Entry | str] = []
        self._numbers: dict[str, int] = {}
        # By number: for how many of the client's programs it was leased.
        self._leases: collections.Counter[int] = collections.Counter()
        self.presence = Presence(pid)
        self.attached = 0  # connections so far
        self.ended = False  # a plain attribute, because each Run reads it
        self._lock = threading.Lock()
        self._frozen = False
        self._sending: list[list[Any]] = []
        self.freed_at_call = -1  # how many calls the daemon had made when this session last met a full device
        self._on_disk: OnDisk | None = None
        self._loading = threading.Lock()
        self._entry_of: EntryOf = _none

    @property
    def client(self) -> str:
        """The name of the client for messages."""
        return self.program or f"process {self.pid}"

    # ---- programs and arrays

    def lease(self, entry: Entry) -> int:
        """Return the number under which the client calls a program, until it has released each lease."""
        with self._lock:
            number = self._numbers.get(entry.key)
            if number is None or self.executables[number] is not entry:
                number = self._numbers[entry.key] = len(self.executables)
                self.executables.append(entry)
                entry.holders.add(self)
            self._leases[number] += 1
            return number

    def release(self, numbers: Iterable[int]) -> None:
        """Let go of programs that the client cannot call any more. Unknown numbers are ignored."""
        with self._lock:
            for number in numbers:
                if not 0 <= number < len(self.executables):
                    continue
                self._leases[number] -= 1
                if self._leases[number] > 0:
                    continue
                entry, self.executables[number] = self.executables[number], ""
                if isinstance(entry, Entry):
                    entry.holders.discard(self)
                    self._numbers.pop(entry.key, None)
            self._leases = +self._leases

    def executable(self, number: int) -> Entry:
        """Return the program of a number.

        Raises:
            IndexError: there is no program with this number.
            DaemonLost: the program is from before a restart, and cannot be made again.
            ProgramLost: the client has released the program.
        """
        entry = self.executables[number]
        if entry == "":
            raise ProgramLost("the program was released by the process that looked it up. Call it again.")
        return self._restored_program(number, entry) if isinstance(entry, str) else entry

    def _restored_program(self, number: int, key: str) -> Entry:
        try:
            entry = self._entry_of(key)
        except Exception as error:  # making it may run user code
            log.warning("a program from before the restart cannot be made again", exc_info=True)
            raise DaemonLost(f"the daemon restarted, and the program cannot be made again: {error}") from error
        if entry is None:
            log.warning("a program from before the restart is not in the cache: %s", key)
            raise DaemonLost("the daemon restarted, and the program is not in its cache any more")
        with self._lock:
            self.executables[number] = entry
            if not self.ended:
                entry.holders.add(self)
        return entry

    def leased(self) -> list[Entry]:
        """Return the programs that the session uses."""
        return [entry for entry in list(self.executables) if isinstance(entry, Entry)]

    def array(self, handle: int) -> Any:
        """Return the array of a handle.

        Raises:
            ArrayLost: there is no array under this handle.
            Failed: the call that makes the array failed.
        """
        found = self.arrays.get(handle)
        if found is None:
            self.active.settle()
            found = self.arrays.get(handle)
        if found is None:
            raise ArrayLost("the daemon holds no array under this handle: the call that makes it failed or was lost")
        if type(found) is Failed:
            raise Failed(found.failure)  # a new exception each time: tracebacks would accumulate
        return found

    def forget(self, handles: Iterable[int]) -> None:
        """Free arrays now, or after a Run that may need them. Unknown handles are ignored."""
        if self.attached > 1 and self.active.has_older():
            # A Run of an earlier connection may still read any handle that does not belong to this connection.
            first = self.attached * _HANDLES_PER_CONNECTION
            handles = list(handles)
            with self._lock:
                self.pending_drops.update([handle for handle in handles if handle < first])
            handles = [handle for handle in handles if handle >= first]
        for handle in handles:
            self.arrays.pop(handle, None)
            self.makers.pop(handle, None)

    def free_pending_drops(self) -> None:
        """Free dropped arrays that no active Run needs any more. Call this method at the end of a Run."""
        if not self.active.has_older():
            with self._lock:
                pending_drops, self.pending_drops = self.pending_drops, set()
            self.forget(pending_drops)

    def keep(self, first: int, results: Iterable[Any], maker: int | None = None) -> None:
        """Store the results of a call of the program `maker`, or arrays that were put, under consecutive handles."""
        for handle, result in enumerate(results, first):
            self.arrays[handle] = result  # `hand_over` gives up the dictionary, which must not change from then on
            if maker is not None:
                self.makers[handle] = maker

    def maker_of(self, handle: int) -> tuple[str, str]:
        """Return the label and the place of the function that made an array; for people."""
        executables = self.executables  # before the number, as `end` replaces both
        number = self.makers.get(handle)
        if number is None:
            return "put by the program", ""
        entry = executables[number] if number != _BEFORE else ""
        return (entry.info.label, entry.info.where) if isinstance(entry, Entry) else ("a program of before", "")

    @contextlib.contextmanager
    def sending(self, handles: Iterable[int]) -> Iterator[None]:
        """Hold the arrays under these handles while their values are sent, which a client may never read.

        The message has their memory. Without this, another connection of the session could drop the handles and put
        more arrays than there is room for.
        """
        arrays = [self.arrays.get(handle) for handle in handles]
        with self._lock:
            self._sending = [*self._sending, arrays]
        try:
            yield
        finally:
            with self._lock:
                self._sending = [other for other in self._sending if other is not arrays]

    def held(self) -> list[Any]:
        """Return the arrays of the session, once for each handle, and those that are only being sent any more."""
        held = list(self.arrays.values())
        if self._sending:
            kept = set(map(id, held))
            sent = {id(array): array for arrays in self._sending for array in arrays}
            held += [array for key, array in sent.items() if key not in kept]
        return [array for array in held if array is not None and type(array) is not Failed and not array.is_deleted()]

    def identities(self) -> set[int | str]:
        """Return identifiers of the session's arrays, for comparison with those of named trees; see `OnDisk`."""
        on_disk = self._on_disk
        return {*map(id, self.held()), *(on_disk.identities() if on_disk is not None else ())}

    def has_arrays_in(self, memory: int) -> bool:
        """Return whether some of the session's arrays are in a memory."""
        return any(memory in bytes_of(array) for array in self.held())

    def array_bytes(self) -> int:
        """Return the bytes of the session's arrays."""
        return sum(array.nbytes for array in self.held())

    # ---- the order of its clients' Runs

    def order(self, client: bytes, pid: int = 0) -> Order:
        """Return the order of Runs of one client: the process `pid` that began the session, or one that joined it."""
        with self._lock:
            order = self._orders.get(client)
            if order is None:
                self._forget_exited()
                order = self._orders[client] = Order(active=self.active)
            order.pid = pid
            if self._frozen:
                order.freeze()
            return order

    def _forget_exited(self) -> None:
        """Forget the clients that cannot return, such as forked children that have exited."""
        for client, order in dict(self._orders).items():
            if order.pid and order.connection is None and has_exited(order.pid):
                del self._orders[client]

    # ---- connections

    def attach(self, pid: int) -> int | None:
        """Attach a connection of a process; return its first handle, or None if the session is over."""
        with self._lock:
            attached = self.presence.attach(pid)
            if not attached:
                return None
            self.attached = attached
            return attached * _HANDLES_PER_CONNECTION

    def end(self) -> None:
        """Free the session's arrays and programs."""
        with self._lock:
            self.ended = True
            self.presence.end()
            self.arrays.clear()
            self.makers.clear()
            for entry in self.leased():
                entry.holders.discard(self)
            self.executables = []
            self._numbers.clear()
            on_disk, self._on_disk = self._on_disk, None
        if on_disk is not None:
            on_disk.discard()

    # ---- from one daemon to the next

    def freeze(self) -> None:
        """Refuse further Runs on all connections: clients repeat them at the next daemon."""
        with self._lock:
            self._frozen = True
            for order in self._orders.values():
                order.freeze()
            self.presence.freeze()

    def is_on_disk(self) -> bool:
        """Return whether the session's arrays are still on disk. Waits while they are being read."""
        with self._loading:
            return self._on_disk is not None

    def hand_over(self) -> tuple[SessionState, dict[int, Any]]:
        """Return the state of a frozen session for the next daemon, and its arrays, which the session gives up."""
        with self._lock:
            arrays, self.arrays = self.arrays, {}
            for handle in self.pending_drops:  # a Run that needed them did not finish in time
                arrays.pop(handle, None)
            client, others = self.presence.named()
            state = SessionState(
                token=self.token,
                client=client,
                others=others,
                attached=self.attached,
                begun={client: order.freeze() for client, order in self._orders.items()},
                programs=tuple(entry if isinstance(entry, str) else entry.key for entry in self.executables),
            )
            return state, arrays

    @classmethod
    def restored(cls, state: SessionState, on_disk: OnDisk, entry_of: EntryOf, budget: ArrayBudget) -> "DaemonSession":
        """Return a session of the previous daemon, whose arrays are still on disk."""
        session = cls(0, budget)
        session.token, session.pid = state.token, state.client.pid
        session.presence = Presence.restored(state.client, state.others, state.attached)
        session.attached = state.attached
        session._orders = {client: Order(begun, session.active) for client, begun in state.begun.items()}
        session.executables = list(state.programs)
        session._on_disk, session._entry_of = on_disk, entry_of
        return session

    def load(self) -> None:
        """Read the session's arrays, if they are still on disk."""
        with self._loading:
            on_disk = self._on_disk
            if on_disk is not None:
                loaded = on_disk.load()
                self.arrays.update(loaded)
                self.makers.update(dict.fromkeys(loaded, _BEFORE))
                on_disk.discard()
                self._on_disk = None


def _none(key: str) -> Entry | None:
    return None
