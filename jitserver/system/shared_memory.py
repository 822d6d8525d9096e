"""Shared memory: the daemon's pool of blocks, and the blocks lent to one connection.

Blocks are reused because pages that were touched before are fast. A block is in one of three states: free in the pool,
lent to one connection, or kept because arrays of the daemon use its memory. A block returns to the pool when the client
releases it, or when the last array that uses it is freed. The blocks of a closed connection are retired: they are never
written again, and are freed with their last reader on either side.
"""

import itertools
import threading
import time
import weakref
from collections.abc import Sequence

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import HostArray
from jitclient.wire.memfd import possible
from jitclient.wire.messages import Leased, Return
from jitclient.wire.shared_memory import (
    MAX_LENT_BLOCKS,
    OwnBlock,
    Reader,
    capacity_for,
    copy_into,
    room_for,
    smallest_fitting,
)
from jitserver.system import memory_limits

IDLE_SECONDS = 300.0
"""Seconds without use after which a free block is freed."""

_MAX_BLOCKS = 128  # each block takes two file descriptors


class BlockPool:
    """All blocks of this daemon, with a limit on their total size. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self.nbytes = 0
        self.count = 0
        self.lent_bytes = 0
        self._max_bytes = max_bytes if possible() else 0
        self._free: list[OwnBlock] = []
        self._kept: list[tuple[OwnBlock, weakref.ref[HostArray]]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def lends(self) -> bool:
        """Whether the pool can ever lend a block."""
        return self._max_bytes > 0

    def take(self, nbytes: int) -> OwnBlock | None:
        """Lend a block of at least `nbytes` bytes, a used one if possible.

        Returns:
            The block; None if the pool is at its limit, or if no memory or file descriptors are left.
        """
        capacity = capacity_for(nbytes)
        self._settle()
        with self._lock:
            block = smallest_fitting(self._free, nbytes)
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
        # No file descriptors, or no memory: the caller sends the arrays over the socket instead.
        except OSError:
            self.retire(capacity)
            return None

    def put(self, block: OwnBlock) -> None:
        """Return a lent block to the pool."""
        with self._lock:
            self.lent_bytes -= block.capacity
            self._add_free(block)

    def keep(self, block: OwnBlock, whole: "weakref.ref[HostArray]") -> None:
        """Keep a lent block for arrays of the daemon, until none of them uses its memory.

        Args:
            block: the block.
            whole: a reference to the array of the whole block, which the arrays that use the block keep alive.
        """
        with self._lock:
            self.lent_bytes -= block.capacity
            self._kept.append((block, whole))

    def retire(self, capacity: int) -> None:
        """Remove a lent block of this size from the counts: it never returns to the pool."""
        with self._lock:
            self.lent_bytes -= capacity
            self._count(-1, -capacity)

    def trim(self, now: float) -> None:
        """Free the blocks that have been unused for `IDLE_SECONDS` at time `now`."""
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
        return self.nbytes + capacity <= self._max_bytes and self.count < _MAX_BLOCKS

    def _count(self, blocks: int, nbytes: int) -> None:
        self.count += blocks
        self.nbytes += nbytes


class Lent:
    """The blocks lent to one connection. Only the connection's thread may use this object."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[int, OwnBlock] = {}
        self._reading: dict[int, tuple[OwnBlock, weakref.ref[HostArray]]] = {}

    def lease(self, nbytes: int) -> tuple[Leased, int | None]:
        """Lend a block of at least `nbytes` bytes.

        Returns:
            The reply, and the file descriptor to send with it; an empty reply and None if no block is available.
        """
        block = self._pool.take(nbytes) if nbytes > 0 and len(self._blocks) < MAX_LENT_BLOCKS else None
        if block is None:
            return Leased(), None
        self._blocks[block.number] = block
        return Leased(block.number, block.capacity), block.fd

    def take_back(self, message: Return) -> None:
        """Take back the blocks that the client frees or retires."""
        for number in message.free:
            self._pool.put(self._remove_lent(number))
        for number in message.retired:
            self._pool.retire(self._remove_lent(number).capacity)

    def arguments(self, number: int) -> Reader:
        """Return a reader of the arguments in a block, which the daemon owns until `release_arguments`."""
        block = self._remove_lent(number)
        whole, reference = block.readable()
        self._reading[number] = block, reference
        return Reader(whole)

    def is_read(self, number: int) -> bool:
        """Return whether an array or a transfer still uses the arguments in a block."""
        return self._reading[number][1]() is not None

    def fill(self, number: int, arrays: Sequence[HostArray]) -> bool:
        """Write arrays into a block that the client offered; return False if they do not fit."""
        block = self._blocks[number] = self._remove_lent(number)  # stays lent to the client
        if room_for([array.nbytes for array in arrays]) > block.capacity:
            return False
        copy_into(block, arrays)
        return True

    def release_arguments(self, number: int) -> bool:
        """Return a block of arguments to the client, or keep it in the pool if an array or a result uses its memory.

        An array that uses the block's memory holds a reference to the array of the whole block.

        Returns:
            Whether the client may use the block again.
        """
        block, whole = self._reading.pop(number)
        if whole() is not None:
            self._pool.keep(block, whole)
            return False
        self._blocks[number] = block
        return True

    def close(self) -> None:
        """Retire all blocks after the connection has closed: the client may still read them."""
        for block in (*self._blocks.values(), *(block for block, _ in self._reading.values())):
            self._pool.retire(block.capacity)
        self._blocks.clear()
        self._reading.clear()

    def _remove_lent(self, number: int) -> OwnBlock:
        if number not in self._blocks:
            raise ProtocolError(f"block {number} is not lent to this client")
        return self._blocks.pop(number)


def memory_share() -> int:
    """Return the default limit for blocks: a quarter of the memory that this process may use."""
    return memory_limits.memory_bytes() // 4
