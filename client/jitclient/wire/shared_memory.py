"""Shared memory between both ends of a local connection, which saves copying arrays through the socket."""

import fcntl
import mmap
import os
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import ALIGNMENT, HostArray
from jitclient.wire.memfd import MIN_CAPACITY, SEALS, sealed

MAX_LENT_BLOCKS = 32
"""Maximum number of blocks that one connection leases at a time: each takes up to two file descriptors per side."""

_MAX_POPULATED_BYTES = 256 << 20
"""Size up to which all pages of a block are made with its map. No other thread of the process runs meanwhile."""

_STEPS = 4  # block sizes per power of two


class Block:
    """Shared memory block. Its size is sealed: no peer can truncate it, which would kill readers with SIGBUS."""

    def __init__(self, number: int, capacity: int, fd: int) -> None:
        self.number = number
        self.capacity = capacity
        self.used = 0.0
        """Time of the last release on the monotonic clock, set by the pool that holds the block."""
        populate = mmap.MAP_POPULATE if capacity <= _MAX_POPULATED_BYTES else 0
        self._map = mmap.mmap(fd, capacity, flags=mmap.MAP_SHARED | populate)

    def writable(self) -> HostArray:
        """Return a writable view of the block."""
        return np.frombuffer(self._map, np.uint8)

    def readable(self, gone: Callable[[], object] = lambda: None) -> tuple[HostArray, "weakref.ref[HostArray]"]:
        """Return a read-only view, and a weak reference to it, which dies with the last array that uses the view.

        Numpy's views hold their base, so all arrays made from the view keep it alive. `gone` is called when the view
        dies, perhaps inside a garbage collection, if the reference still exists.
        """
        whole = np.frombuffer(memoryview(self._map).toreadonly(), np.uint8)
        return whole, weakref.ref(whole, lambda _: gone())


class OwnBlock(Block):
    """Block that this process created and whose file descriptor it keeps, to send it.

    Raises:
        OSError: no memory or no file descriptor is left.
    """

    def __init__(self, number: int, capacity: int) -> None:
        self.fd = sealed(capacity)
        try:
            super().__init__(number, capacity, self.fd)
        except BaseException:
            os.close(self.fd)
            raise
        weakref.finalize(self, os.close, self.fd)


AnyBlock = TypeVar("AnyBlock", bound=Block)


def can_cross(sock: socket.socket) -> bool:
    """Return whether file descriptors can be sent over a socket."""
    return sys.platform == "linux" and sock.family == socket.AF_UNIX


def received(number: int, capacity: int, fd: int) -> Block:
    """Map the block of a file descriptor that a peer sent. The caller closes the file descriptor.

    Raises:
        ProtocolError: the file is not sealed memory of that capacity.
        OSError: the block cannot be mapped.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ProtocolError("the peer sent a file descriptor that is not shared memory") from error
    if seals != SEALS:
        raise ProtocolError("the peer sent shared memory with unexpected seals")
    size = os.fstat(fd).st_size
    if size != capacity:
        raise ProtocolError(f"the peer sent shared memory of {size:,} bytes instead of {capacity:,}")
    return Block(number, capacity, fd)


def capacity_for(nbytes: int) -> int:
    """Return the block size for `nbytes` bytes: one of a few sizes, so that blocks can be reused."""
    if nbytes <= MIN_CAPACITY:
        return MIN_CAPACITY
    step = (1 << (nbytes - 1).bit_length()) // 2 // _STEPS
    return -(-nbytes // step) * step


def smallest_fitting(blocks: Sequence[AnyBlock], nbytes: int) -> AnyBlock | None:
    """Return the smallest block with room for `nbytes` bytes, at most twice the needed capacity; None if none fits."""
    fitting = [block for block in blocks if nbytes <= block.capacity <= 2 * capacity_for(nbytes)]
    return min(fitting, key=lambda block: block.capacity, default=None)


def room_for(sizes: Sequence[int]) -> int:
    """Return the number of bytes that arrays of these sizes need in a block."""
    return sum(map(_aligned, sizes))


def copy_into(block: Block, arrays: Sequence[HostArray]) -> None:
    """Copy arrays into a block, one after the other."""
    bytes_of, start = block.writable(), 0
    for array in arrays:
        place = bytes_of[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(place, array)
        start += _aligned(array.nbytes)


class Reader:
    """Reader of the arrays of a block in order, as views."""

    def __init__(self, whole: HostArray) -> None:
        self._whole = whole
        self._start = 0

    def __call__(self, nbytes: int) -> HostArray:
        """Return the next `nbytes` bytes.

        Raises:
            ProtocolError: the block has fewer bytes left.
        """
        start, end = self._start, self._start + nbytes
        if nbytes < 0 or end > len(self._whole):
            raise ProtocolError(f"a read of {nbytes:,} bytes at {start:,} exceeds the block of {len(self._whole):,}")
        self._start += _aligned(nbytes)
        return self._whole[start:end]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
