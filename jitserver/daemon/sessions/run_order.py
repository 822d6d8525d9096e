"""Which Runs of a client have begun, across its successive connections.

A client whose connection broke opens another one and repeats exactly the Runs that had not begun. So once the client
has learned the number of the last begun Run, the old connection must not begin another; and once that number is saved
for the next daemon, this daemon must not.
"""

import itertools
import math
import threading
from collections.abc import Iterable


class Order:
    """The Runs of one client, which numbers them. Another daemon began the first `begun`."""

    def __init__(self, begun: int = 0) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.waiting = 0  # threads: every Run ends, and notifying none costs time, too
        self._begun = begun
        self._frozen = False
        self._carrier: object = None
        self.running: dict[object, tuple[int, int]] = {}  # by connection: its thread, and when its Run began

    def take_over(self, connection: object) -> tuple[int, object]:
        """Makes this connection the one that may begin Runs; returns the number of the last begun Run, and the
        connection that was the one before.
        """
        with self._lock:
            before, self._carrier = self._carrier, connection
            return self._begun, before

    def begin(self, connection: object, number: int) -> bool:
        """Begins a Run; False if another connection has taken over, or will, and may get the same Run."""
        with self._lock:
            if connection is not self._carrier or self._frozen:
                return False
            self._begun = number
            self.running[connection] = threading.get_ident(), next(_numbers)
            return True

    def freeze(self) -> int:
        """Lets no Run begin any more; returns the number of the last begun Run."""
        with self._lock:
            self._frozen = True
            return self._begun

    def end(self, connection: object) -> None:
        """Ends the Run of a connection. No lock: waiting threads increase `waiting` before they read `running`."""
        self.running.pop(connection, None)
        if self.waiting:
            self.tell()

    def tell(self) -> None:
        """Wakes the waiting threads."""
        with self._lock:
            self._changed.notify_all()

    def began(self, thread: int) -> int | None:
        """When the current Run of a thread began, as a number that rises with each Run of any client; None: no Run."""
        return next((number for at, number in list(self.running.values()) if at == thread), None)

    def has_older(self, number: float) -> bool:
        """Whether an earlier connection is still in a Run that began before `number`."""
        running = list(self.running.items())
        return any(connection is not self._carrier and begun < number for connection, (_, begun) in running)

    def settle(self, number: float) -> None:
        """Waits until `has_older` is false. Threads wait only for older Runs, so there is no deadlock."""
        with self._lock:
            self.waiting += 1
            try:
                self._changed.wait_for(lambda: not self.has_older(number))
            finally:
                self.waiting -= 1


def began_here(orders: Iterable[Order]) -> float:
    """When the current Run of this thread began; infinity if it is in none."""
    here = threading.get_ident()
    return next((number for number in (order.began(here) for order in orders) if number is not None), math.inf)


_numbers = itertools.count()
