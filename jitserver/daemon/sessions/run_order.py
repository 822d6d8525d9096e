"""Record of the Runs that a client has begun, across its successive connections.

A client whose connection broke opens another one and repeats exactly the Runs that had not begun. Once the client has
learned the number of the last begun Run, the old connection must therefore not begin another; and once that number is
saved for the next daemon, this daemon must not.
"""

import itertools
import math
import threading

_Running = tuple["Order", int, int]
"""The order of the client, the thread that executes the Run, and a number that rises with each Run of any client."""


class Active:
    """The Runs that the connections of a session are executing. Its size does not depend on earlier connections."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Number of waiting threads. A check of it saves each Run the cost of notifying none.
        self.waiting = 0
        # By connection.
        self.running: dict[object, _Running] = {}

    def end(self, connection: object) -> None:
        """Record the completion of a connection's Run.

        No lock is needed: waiting threads increase `waiting` before they read `running`.
        """
        self.running.pop(connection, None)
        if self.waiting:
            self.notify()

    def notify(self) -> None:
        """Wake the threads that wait in `settle`."""
        with self._changed:
            self._changed.notify_all()

    def has_older(self, number: float | None = None) -> bool:
        """Return whether an earlier connection of a client is executing a Run that began before `number`.

        Without a number, that is the Run of this thread.
        """
        running = dict(self.running).items()
        before = _number_here([each for _, each in running]) if number is None else number
        return any(connection is not order.connection and number < before for connection, (order, _, number) in running)

    def settle(self) -> None:
        """Wait until `has_older` is false. Threads wait only for older Runs, so there is no deadlock."""
        number = _number_here(list(self.running.values()))
        with self._changed:
            self.waiting += 1
            try:
                self._changed.wait_for(lambda: not self.has_older(number))
            finally:
                self.waiting -= 1


class Order:
    """The Runs of one client, which numbers them. An earlier daemon began the first `begun` Runs.

    Attributes:
        active: the Runs of all clients of the session.
        connection: the only connection that may begin Runs; None after it has closed.
        pid: the process of the client; 0 if it is on another machine, or unknown.
    """

    __slots__ = ("_begun", "_frozen", "_lock", "active", "connection", "pid")

    def __init__(self, begun: int = 0, active: Active | None = None) -> None:
        self.active = active or Active()
        self.connection: object = None
        self.pid = 0
        self._lock = threading.Lock()
        self._begun = begun
        self._frozen = False

    def take_over(self, connection: object) -> tuple[int, object]:
        """Make this connection the only one that may begin Runs.

        Returns:
            The number of the last begun Run, and the previous connection.
        """
        with self._lock:
            before, self.connection = self.connection, connection
            return self._begun, before

    def leave(self, connection: object) -> None:
        """Forget a connection that has closed, unless another one has taken over."""
        with self._lock:
            if self.connection is connection:
                self.connection = None

    def begin(self, connection: object, number: int) -> bool:
        """Begin a Run; return False if another connection has taken over, or will, and may get the same Run."""
        with self._lock:
            if connection is not self.connection or self._frozen:
                return False
            self._begun = number
            self.active.running[connection] = self, threading.get_ident(), next(_numbers)
            return True

    def freeze(self) -> int:
        """Refuse all further Runs; return the number of the last begun Run."""
        with self._lock:
            self._frozen = True
            return self._begun


def _number_here(running: list[_Running]) -> float:
    """Return the number of this thread's current Run; infinity if the thread has none."""
    here = threading.get_ident()
    return next((number for _, thread, number in running if thread == here), math.inf)


_numbers = itertools.count()
