"""Record of the Runs that a client has begun, across its successive connections.

A client whose connection broke opens another one and repeats exactly the Runs that had not begun. Once the client has
learned the number of the last begun Run, the old connection must therefore not begin another; and once that number is
saved for the next daemon, this daemon must not.
"""

import itertools
import math
import threading
from collections.abc import Iterable


class Order:
    """The Runs of one client, which numbers them. An earlier daemon began the first `begun` Runs."""

    def __init__(self, begun: int = 0) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # Number of waiting threads. A check of it saves each Run the cost of notifying none.
        self.waiting = 0
        self._begun = begun
        self._frozen = False
        self._current_connection: object = None
        # By connection: its thread, and the sequence number of its Run.
        self.running: dict[object, tuple[int, int]] = {}

    def take_over(self, connection: object) -> tuple[int, object]:
        """Make this connection the only one that may begin Runs.

        Returns:
            The number of the last begun Run, and the previous connection.
        """
        with self._lock:
            before, self._current_connection = self._current_connection, connection
            return self._begun, before

    def begin(self, connection: object, number: int) -> bool:
        """Begin a Run; return False if another connection has taken over, or will, and may get the same Run."""
        with self._lock:
            if connection is not self._current_connection or self._frozen:
                return False
            self._begun = number
            self.running[connection] = threading.get_ident(), next(_numbers)
            return True

    def freeze(self) -> int:
        """Refuse all further Runs; return the number of the last begun Run."""
        with self._lock:
            self._frozen = True
            return self._begun

    def end(self, connection: object) -> None:
        """Record the completion of a connection's Run.

        No lock is needed: waiting threads increase `waiting` before they read `running`.
        """
        self.running.pop(connection, None)
        if self.waiting:
            self.notify()

    def notify(self) -> None:
        """Wake the threads that wait in `settle`."""
        with self._lock:
            self._changed.notify_all()

    def run_number_of(self, thread: int) -> int | None:
        """Return the sequence number of a thread's current Run; None if it has none.

        The numbers rise with each Run of any client.
        """
        return next((number for at, number in list(self.running.values()) if at == thread), None)

    def has_older(self, number: float) -> bool:
        """Return whether an earlier connection is still executing a Run that began before `number`."""
        running = list(self.running.items())
        return any(connection is not self._current_connection and begun < number for connection, (_, begun) in running)

    def settle(self, number: float) -> None:
        """Wait until `has_older` is false. Threads wait only for older Runs, so there is no deadlock."""
        with self._lock:
            self.waiting += 1
            try:
                self._changed.wait_for(lambda: not self.has_older(number))
            finally:
                self.waiting -= 1


def current_run_number(orders: Iterable[Order]) -> float:
    """Return the sequence number of this thread's current Run; infinity if the thread has none."""
    here = threading.get_ident()
    return next((number for number in (order.run_number_of(here) for order in orders) if number is not None), math.inf)


_numbers = itertools.count()
