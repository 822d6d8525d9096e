"""Handles that nobody holds any more, until the daemon is told."""

import collections


class Drops(collections.deque[int]):
    """Dropped handles of one process's stay at a daemon. Those of a stay before, and those that a forked child
    inherited, are of no concern to it. To append one is safe inside garbage collections: no lock, no I/O.
    """

    def take(self) -> tuple[int, ...]:
        """Those noted so far, which are whoever takes them to send.

        To note them again if they could not be sent does no harm, nor to drop one twice: no name is used again.
        """
        taken = []
        while self:  # one by one: a garbage collection may add to it meanwhile
            taken.append(self.popleft())
        return tuple(taken)
