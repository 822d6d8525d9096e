"""Which Runs of a client have begun, across the connections that carry them one after another.

A client whose connection broke opens another and sends again what was not begun, and nothing else. So from the moment
at which it is told how far its Runs had come, the old connection begins none; and from the moment at which that is
written down for the next daemon, this one begins none.
"""

import itertools
import math
import threading
from collections.abc import Iterable


class Order:
    """The Runs of one client, which numbers them. The first `begun` were begun by another daemon."""

    def __init__(self, begun: int = 0) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.waiting = 0  # threads; to tell nobody takes long too, and every Run ends
        self._begun = begun
        self._frozen = False
        self._carrier: object = None
        self.running: dict[object, tuple[int, int]] = {}  # connections: the thread that serves one, and when it began

    def take_over(self, connection: object) -> int:
        """From now on this connection carries the Runs; returns the number of the last one that was begun."""
        with self._lock:
            self._carrier = connection
            return self._begun

    def begin(self, connection: object, number: int) -> bool:
        """Notes that a Run begins; False where another connection carries them by now, or will: it may have it too."""
        with self._lock:
            if connection is not self._carrier or self._frozen:
                return False
            self._begun = number
            self.running[connection] = threading.get_ident(), next(_numbers)
            return True

    def freeze(self) -> int:
        """From now on none begins; returns the number of the last one that was begun."""
        with self._lock:
            self._frozen = True
            return self._begun

    def end(self, connection: object) -> None:
        """Notes that the Run of a connection has ended. No lock: who waits says so before looking at `running`."""
        self.running.pop(connection, None)
        if self.waiting:
            self.tell()

    def tell(self) -> None:
        """Has those that wait look again."""
        with self._lock:
            self._changed.notify_all()

    def began(self, thread: int) -> int | None:
        """When that thread's Run began, if it is at one: a number that rises from Run to Run, whosever they are."""
        return next((number for at, number in list(self.running.values()) if at == thread), None)

    def has_older(self, number: float) -> bool:
        """Whether a connection of before is still at its last Run, which began before the one of that number."""
        running = list(self.running.items())
        return any(connection is not self._carrier and begun < number for connection, (_, begun) in running)

    def settle(self, number: float) -> None:
        """Waits until none is. As nobody waits for what began later, no two wait for each other."""
        with self._lock:
            self.waiting += 1
            try:
                self._changed.wait_for(lambda: not self.has_older(number))
            finally:
                self.waiting -= 1


def began_here(orders: Iterable[Order]) -> float:
    """When the Run of this thread began; infinity where it is at none."""
    here = threading.get_ident()
    return next((number for number in (order.began(here) for order in orders) if number is not None), math.inf)


_numbers = itertools.count()
