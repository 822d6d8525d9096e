"""Memory that both ends of a connection on one machine have mapped: arrays cross without a copy through a socket."""

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

MOST_LENT = 32
"""Blocks that one connection may have at a time: each costs either side a descriptor or two."""

_SMALLEST = 64 << 10
_STEPS = 4  # sizes between one power of two and the next


class Block:
    """Shared pages. Their size is sealed: no peer can take them away under a reader, who would die of SIGBUS."""

    def __init__(self, number: int, capacity: int, descriptor: int) -> None:
        self.number = number
        self.capacity = capacity
        self.used = 0.0
        """When it was last free to use, on the monotonic clock, as whoever keeps it notes."""
        self._map = mmap.mmap(descriptor, capacity, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)

    def writable(self) -> HostArray:
        """Its bytes, to write arrays into."""
        return np.frombuffer(self._map, np.uint8)

    def readable(self, gone: Callable[[], object] = lambda: None) -> tuple[HostArray, "weakref.ref[HostArray]"]:
        """Its bytes, read-only, and a reference to them, which is dead when nobody can read them any more.

        Every array made of these bytes keeps them alive, and every array made of that one: numpy's views hold their
        base. `gone` is called at the end, inside a garbage collection, while the reference exists.
        """
        whole = np.frombuffer(memoryview(self._map).toreadonly(), np.uint8)
        return whole, weakref.ref(whole, lambda _: gone())


class OwnBlock(Block):
    """A block that this process made, and whose descriptor it keeps to pass on.

    Raises:
        OSError: there is no memory or no descriptor for it.
    """

    def __init__(self, number: int, capacity: int) -> None:
        self.descriptor = os.memfd_create("jitserver", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, capacity)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            super().__init__(number, capacity, self.descriptor)
        except BaseException:
            os.close(self.descriptor)
            raise
        weakref.finalize(self, os.close, self.descriptor)


AnyBlock = TypeVar("AnyBlock", bound=Block)


def possible() -> bool:
    """Whether this machine has such memory."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return False
    try:
        OwnBlock(0, _SMALLEST)
    except OSError:  # a sandbox may forbid it
        return False
    return True


def can_cross(sock: socket.socket) -> bool:
    """Whether descriptors can be passed over a socket, and understood at this end."""
    return sys.platform == "linux" and sock.family == socket.AF_UNIX


def received(number: int, capacity: int, descriptor: int) -> Block:
    """The block behind a descriptor that a peer passed on. The descriptor stays the caller's to close.

    Raises:
        ProtocolError: it is none of ours: no sealed memory, or of another size than the peer says.
        OSError: it cannot be mapped here.
    """
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ProtocolError("a descriptor that came for shared memory is none") from error
    if seals != _SEALS:
        raise ProtocolError("the size of shared memory that came is not sealed, or its pages are")
    size = os.fstat(descriptor).st_size
    if size != capacity:
        raise ProtocolError(f"shared memory of {size:,} bytes came for one of {capacity:,}")
    return Block(number, capacity, descriptor)


def capacity_for(nbytes: int) -> int:
    """The size of the block for so many bytes: few sizes, so that blocks find users again, and little waste."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = (1 << (nbytes - 1).bit_length()) // 2 // _STEPS
    return -(-nbytes // step) * step


def best(blocks: Sequence[AnyBlock], nbytes: int) -> AnyBlock | None:
    """The smallest of some blocks that has room for so many bytes, and is not far too large."""
    fitting = [block for block in blocks if nbytes <= block.capacity <= 2 * capacity_for(nbytes)]
    return min(fitting, key=lambda block: block.capacity, default=None)


def room_for(sizes: Sequence[int]) -> int:
    """Bytes that arrays of those sizes take in a block."""
    return sum(map(_aligned, sizes))


def lay(block: Block, arrays: Sequence[HostArray]) -> None:
    """Copies arrays into a block, one after the other."""
    bytes_of, start = block.writable(), 0
    for array in arrays:
        place = bytes_of[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(place, array)
        start += _aligned(array.nbytes)


class Reader:
    """Hands out arrays that lie one after the other in a block. They are its bytes: nothing is copied."""

    def __init__(self, whole: HostArray) -> None:
        self._whole = whole
        self._start = 0

    def __call__(self, nbytes: int) -> HostArray:
        """The next `nbytes` bytes.

        Raises:
            ProtocolError: the block has not so many.
        """
        start, end = self._start, self._start + nbytes
        if nbytes < 0 or end > len(self._whole):
            raise ProtocolError(f"{nbytes:,} bytes at {start:,} are not in a block of {len(self._whole):,}")
        self._start += _aligned(nbytes)
        return self._whole[start:end]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if sys.platform == "linux" else 0
