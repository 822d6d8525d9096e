"""Shared memory: a pool that outlives its users, because pages once touched are fast, and what one client has of it.

A block is free in the pool or lent to one connection, and there it is the client's, or read by arrays here. It goes
back to the pool only when the client says that it is done. Whatever a connection has when it ends is retired: its
pages are freed when the last reader on either side is gone, and nobody writes them again.
"""

import collections
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from jitclient.errors import ProtocolError
from jitclient.wire.arrays import HostArray
from jitclient.wire.blocks import MOST_LENT, OwnBlock, Reader, best, capacity_for, lay, possible, room_for
from jitclient.wire.messages import Leased, Return

IDLE_SECONDS = 300.0
"""A block that nobody wanted for so long is freed."""

_MOST_BLOCKS = 128  # each takes two descriptors


class Pool:
    """All blocks of this daemon, of at most so many bytes together. Safe to use from many threads."""

    def __init__(self, most_bytes: int) -> None:
        self.nbytes = 0
        self.count = 0
        self._most_bytes = most_bytes if possible() else 0
        self._free: list[OwnBlock] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def lends(self) -> bool:
        """Whether it has anything to lend, ever."""
        return self._most_bytes > 0

    def take(self, nbytes: int) -> OwnBlock | None:
        """A block with room for so many bytes, its pages warm if there is one; None where there may be no more."""
        capacity = capacity_for(nbytes)
        with self._lock:
            block = best(self._free, nbytes)
            if block is not None:
                self._free.remove(block)
                return block
            while self._free and not self._has_room(capacity):
                self._forget(self._free.pop(0))
            if not self._has_room(capacity):
                return None
            self._count(1, capacity)
        try:
            return OwnBlock(next(self._numbers), capacity)
        except OSError:  # no descriptors, or no memory: arrays go over the socket
            self.retire(capacity)
            return None

    def put(self, block: OwnBlock) -> None:
        """Takes a block back that nobody has any more."""
        block.used = time.monotonic()
        with self._lock:
            self._free.append(block)

    def retire(self, capacity: int) -> None:
        """A block of that size will not come back."""
        with self._lock:
            self._count(-1, -capacity)

    def trim(self, now: float) -> bool:
        """Frees blocks that nobody has wanted for long by `now`; whether there were any."""
        with self._lock:
            old = [block for block in self._free if now - block.used >= IDLE_SECONDS]
            for block in old:
                self._free.remove(block)
                self._forget(block)
        return bool(old)

    def _has_room(self, capacity: int) -> bool:
        return self.nbytes + capacity <= self._most_bytes and self.count < _MOST_BLOCKS

    def _forget(self, block: OwnBlock) -> None:
        self._count(-1, -block.capacity)

    def _count(self, blocks: int, nbytes: int) -> None:
        self.count += blocks
        self.nbytes += nbytes


class Lent:
    """The blocks of one connection. Used by its thread only."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: dict[int, OwnBlock] = {}
        self._reading: dict[int, weakref.ref[HostArray]] = {}
        self._finished: collections.deque[int] = collections.deque()

    @property
    def reading(self) -> bool:
        """Whether any holds arguments that may still be read here."""
        return bool(self._reading)

    def lease(self, nbytes: int) -> tuple[Leased, int | None]:
        """Lends a block with room for so many bytes; returns the answer and the descriptor that goes with it."""
        block = self._pool.take(nbytes) if nbytes > 0 and len(self._blocks) < MOST_LENT else None
        if block is None:
            return Leased(), None
        self._blocks[block.number] = block
        return Leased(block.number, block.capacity), block.descriptor

    def take_back(self, message: Return) -> None:
        """The client has no more use for some.

        Raises:
            ProtocolError: they are not the client's to give.
        """
        for number in message.free:
            block = self._of_client(number)
            del self._blocks[number]
            self._pool.put(block)
        for number in message.retired:
            block = self._of_client(number)
            del self._blocks[number]
            self._pool.retire(block.capacity)

    def arguments(self, number: int) -> Reader:
        """Reads what the client has put into a block, which is ours until `came_back` names it.

        Raises:
            ProtocolError: it is not the client's to give.
        """
        finished = self._finished
        # What reads it, and results that are its bytes, hold this array; so it comes back when none of them is left.
        whole, self._reading[number] = self._of_client(number).readable(lambda: finished.append(number))
        return Reader(whole)

    def fill(self, number: int, arrays: Sequence[HostArray]) -> bool:
        """Writes values into a block that the client offered; False where they do not fit.

        Raises:
            ProtocolError: it is not the client's to offer.
        """
        block = self._of_client(number)
        if room_for([array.nbytes for array in arrays]) > block.capacity:
            return False
        lay(block, arrays)
        return True

    def came_back(self) -> tuple[int, ...]:
        """Blocks of arguments that nothing here reads any more: from now on they are the client's."""
        back = [self._finished.popleft() for _ in range(len(self._finished))]
        for number in back:
            del self._reading[number]
        return tuple(back)

    def close(self) -> None:
        """The connection has ended: nobody knows who still reads them."""
        for block in self._blocks.values():
            self._pool.retire(block.capacity)
        self._blocks.clear()

    def _of_client(self, number: int) -> OwnBlock:
        if number in self._reading or number not in self._blocks:
            raise ProtocolError(f"block {number} is not this client's to use")
        return self._blocks[number]


Take = Callable[[int], HostArray]
"""Hands out the next so many bytes of what goes beside a message."""


def memory_share() -> int:
    """Bytes that blocks may take where nobody says: a quarter of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
