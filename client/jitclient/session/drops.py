"""Dropped handles that the daemon has not been told about."""

import collections


class Drops(collections.deque[int]):
    """Dropped handles of one process and one session; handles of an earlier session or a forked parent have another.

    Appending is safe inside garbage collections: no lock, no I/O.
    """

    def take(self) -> tuple[int, ...]:
        """Take all handles, to send them.

        Put them back if they could not be sent. Dropping one twice is harmless: handles are never reused.
        """
        taken = []
        while self:  # one by one: a garbage collection may add to it meanwhile
            taken.append(self.popleft())
        return tuple(taken)
