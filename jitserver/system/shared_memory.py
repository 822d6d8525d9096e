"""Shared memory: a pool of blocks, which are reused because touched pages are fast, and the blocks of one connection.

A block is free in the pool, lent to one connection, or kept because the daemon's arrays use its memory. It returns to
the pool when the client releases it, or when the last of those arrays is freed. The blocks of a connection that ends
are retired: they are never written again, and are freed with their last reader on either side.
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
from jitserver.system import memory_limits

IDLE_SECONDS = 300.0
"""A block is freed after so long without use."""

_MOST_BLOCKS = 128  # each takes two descriptors


class Pool:
    """All blocks of this daemon, with a limit on their total size. Thread-safe."""

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
        """Whether it may ever have a block."""
        return self._most_bytes > 0

    def take(self, nbytes: int) -> OwnBlock | None:
        """Takes a block of at least so many bytes, a used one if possible; None at the limit."""
        capacity = capacity_for(nbytes)
        self._settle()
        with self._lock:
            block = best(self._free, nbytes)
            if block is not None:
                self._free.remove(block)
                self.lent_bytes += block.capacity
                return block
            while self._free and not self._has_room(capacity):
                self._count(-1, -self._free.pop(0).capacity)
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
        """Takes back a block that was lent."""
        with self._lock:
            self.lent_bytes -= block.capacity
            self._add_free(block)

    def keep(self, block: OwnBlock, whole: "weakref.ref[HostArray]") -> None:
        """Keeps a lent block for arrays of the daemon, until none of them uses it."""
        with self._lock:
            self.lent_bytes -= block.capacity
            self._kept.append((block, whole))

    def retire(self, capacity: int) -> None:
        """Gives up a lent block of this size."""
        with self._lock:
            self.lent_bytes -= capacity
            self._count(-1, -capacity)

    def trim(self, now: float) -> None:
        """Frees the blocks that were unused for long at `now`."""
        self._settle()
        with self._lock:
            for block in [block for block in self._free if now - block.used >= IDLE_SECONDS]:
                self._free.remove(block)
                self._count(-1, -block.capacity)

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

    def _count(self, blocks: int, nbytes: int) -> None:
        self.count += blocks
        self.nbytes += nbytes


class Lent:
    """The blocks lent to one connection. For its thread only."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: dict[int, OwnBlock] = {}
        self._reading: dict[int, tuple[OwnBlock, weakref.ref[HostArray]]] = {}

    def lease(self, nbytes: int) -> tuple[Leased, int | None]:
        """Lends a block of at least so many bytes; returns the answer and the descriptor to send with it."""
        block = self._pool.take(nbytes) if nbytes > 0 and len(self._blocks) < MOST_LENT else None
        if block is None:
            return Leased(), None
        self._blocks[block.number] = block
        return Leased(block.number, block.capacity), block.descriptor

    def take_back(self, message: Return) -> None:
        """Takes back the blocks that the client releases."""
        for number in message.free:
            self._pool.put(self._taken(number))
        for number in message.retired:
            self._pool.retire(self._taken(number).capacity)

    def arguments(self, number: int) -> Reader:
        """Reads the arguments in a block, which the daemon owns until `gives_back`."""
        block = self._taken(number)
        whole, reference = block.readable()
        self._reading[number] = block, reference
        return Reader(whole)

    def fill(self, number: int, arrays: Sequence[HostArray]) -> bool:
        """Writes values into a block that the client offered; False if they do not fit."""
        block = self._blocks[number] = self._taken(number)  # it stays with the client
        if room_for([array.nbytes for array in arrays]) > block.capacity:
            return False
        lay(block, arrays)
        return True

    def gives_back(self, number: int) -> bool:
        """Returns a block of arguments to the client, or keeps it in the pool if an array or a result uses its memory.

        Such an array holds a reference to the array of the whole block.
        """
        block, whole = self._reading.pop(number)
        if whole() is not None:
            self._pool.keep(block, whole)
            return False
        self._blocks[number] = block
        return True

    def close(self) -> None:
        """Retires all blocks when the connection has ended: the client may still read them."""
        for block in (*self._blocks.values(), *(block for block, _ in self._reading.values())):
            self._pool.retire(block.capacity)
        self._blocks.clear()
        self._reading.clear()

    def _taken(self, number: int) -> OwnBlock:
        if number not in self._blocks:
            raise ProtocolError(f"block {number} is not lent to this client")
        return self._blocks.pop(number)


def memory_share() -> int:
    """Default limit for blocks: a quarter of the memory that this process may use."""
    return memory_limits.memory_bytes() // 4
