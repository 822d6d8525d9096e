"""Which Runs of a client have begun, across the connections that carry them one after another.

A client whose connection broke opens another and sends again what was not begun, and nothing else. So from the moment
at which it is told how far its Runs had come, the old connection begins none; and from the moment at which that is
written down for the next daemon, this one begins none.
"""

import threading


class Order:
    """The Runs of one client, which numbers them. The first `begun` were begun by another daemon."""

    def __init__(self, begun: int = 0) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # threads; to tell nobody takes long too, and every Run ends
        self._begun = begun
        self._frozen = False
        self._carrier: object = None
        self._running: dict[object, int] = {}  # connections, and the threads that serve them

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
            self._running[connection] = threading.get_ident()
            return True

    def freeze(self) -> int:
        """From now on none begins; returns the number of the last one that was begun."""
        with self._lock:
            self._frozen = True
            return self._begun

    def end(self, connection: object) -> None:
        """Notes that the Run of a connection has ended."""
        with self._lock:
            self._running.pop(connection, None)
            if self._waiting:
                self._changed.notify_all()

    def is_unsettled(self) -> bool:
        """Whether a connection of before is still at its last Run, which began before that of this thread, if any."""
        here = threading.get_ident()
        for connection, thread in list(self._running.items()):  # in the order in which they began
            if thread == here:
                return False
            if connection is not self._carrier:
                return True
        return False

    def settle(self) -> None:
        """Waits until none is."""
        with self._lock:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self.is_unsettled())
            finally:
                self._waiting -= 1
