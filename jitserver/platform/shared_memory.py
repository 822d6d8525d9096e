"""Shared memory: a pool that outlives its users, because pages once touched are fast, and what one client has of it.

A block is free in the pool, or lent to one connection, or kept, because arrays of ours are its bytes. It goes back to
the pool when the client says that it has no more use for it, or when the last of those arrays is gone. Whatever a
connection has when it ends is retired: its pages are freed when the last reader on either side is gone, and nobody
writes them again.
"""

import itertools
import threading
import time
import weakref
from collections.abc import Sequence

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import HostArray
from jitclient.wire.messages import Leased, Return
from jitclient.wire.shared_memory import MOST_LENT, OwnBlock, Reader, best, capacity_for, lay, possible, room_for
from jitserver.platform import memory_limits

IDLE_SECONDS = 300.0
"""A block that nobody wanted for so long is freed."""

_MOST_BLOCKS = 128  # each takes two descriptors


class Pool:
    """All blocks of this daemon, of at most so many bytes together. Safe to use from many threads."""

    def __init__(self, most_bytes: int) -> None:
        self.nbytes = 0
        self.count = 0
        self.lent_bytes = 0
        self._most_bytes = most_bytes if possible() else 0
        self._free: list[OwnBlock] = []
        self._kept: list[tuple[OwnBlock, weakref.ref[HostArray]]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def lends(self) -> bool:
        """Whether it has anything to lend, ever."""
        return self._most_bytes > 0

    def take(self, nbytes: int) -> OwnBlock | None:
        """A block with room for so many bytes, its pages warm if there is one; None where there may be no more."""
        capacity = capacity_for(nbytes)
        self._settle()
        with self._lock:
            block = best(self._free, nbytes)
            if block is not None:
                self._free.remove(block)
                self.lent_bytes += block.capacity
                return block
            while self._free and not self._has_room(capacity):
                self._forget(self._free.pop(0))
            if not self._has_room(capacity):
                return None
            self._count(1, capacity)
            self.lent_bytes += capacity
        try:
            return OwnBlock(next(self._numbers), capacity)
        except OSError:  # no descriptors, or no memory: arrays go over the socket
            self.retire(capacity)
            return None

    def put(self, block: OwnBlock) -> None:
        """Takes a block back from whom it was lent to."""
        with self._lock:
            self.lent_bytes -= block.capacity
            self._add_free(block)

    def keep(self, block: OwnBlock, whole: "weakref.ref[HostArray]") -> None:
        """Takes a block over that only we read, until nothing does."""
        with self._lock:
            self.lent_bytes -= block.capacity
            self._kept.append((block, whole))

    def retire(self, capacity: int) -> None:
        """A block of that size will not come back from whom it was lent to."""
        with self._lock:
            self.lent_bytes -= capacity
            self._count(-1, -capacity)

    def trim(self, now: float) -> bool:
        """Frees blocks that nobody has wanted for long by `now`; whether there were any."""
        self._settle()
        with self._lock:
            old = [block for block in self._free if now - block.used >= IDLE_SECONDS]
            for block in old:
                self._free.remove(block)
                self._forget(block)
        return bool(old)

    def _settle(self) -> None:
        with self._lock:
            finished = [block for block, whole in self._kept if whole() is None]
            self._kept = [(block, whole) for block, whole in self._kept if block not in finished]
            for block in finished:
                self._add_free(block)

    def _add_free(self, block: OwnBlock) -> None:
        block.used = time.monotonic()
        self._free.append(block)

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
        self._reading: dict[int, tuple[OwnBlock, weakref.ref[HostArray]]] = {}

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
        """Reads what the client put into a block, which is ours until `gives_back`.

        Raises:
            ProtocolError: it is not the client's to give.
        """
        block = self._of_client(number)
        del self._blocks[number]
        whole, reference = block.readable()
        self._reading[number] = block, reference
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

    def gives_back(self, number: int) -> bool:
        """Ends our turn with a block of arguments: it is the client's again, or else the pool's, if something reads it.

        Something may: a resident array, or a result, that is its bytes. Both hold the array of the whole block.
        """
        block, whole = self._reading.pop(number)
        if whole() is not None:
            self._pool.keep(block, whole)
            return False
        self._blocks[number] = block
        return True

    def close(self) -> None:
        """The connection has ended: nobody knows who still reads them."""
        for block in (*self._blocks.values(), *(block for block, _ in self._reading.values())):
            self._pool.retire(block.capacity)
        self._blocks.clear()
        self._reading.clear()

    def _of_client(self, number: int) -> OwnBlock:
        if number not in self._blocks:
            raise ProtocolError(f"block {number} is not this client's to use")
        return self._blocks[number]


def memory_share() -> int:
    """Bytes that blocks may take where nobody says: a quarter of what this process may use."""
    return memory_limits.memory_bytes() // 4
