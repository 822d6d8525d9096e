"""Shared memory that the daemon leases to one connection, and which side uses each block.

A block is free, or at the daemon with the arguments of a call, or read by this program, whose arrays are views of it.
Only its current user writes to it. A block that may have untracked readers (a forked child, a broken connection) is
retired: it is never written again.
"""

import collections
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

from jitclient.core.clock import monotonic
from jitclient.wire.array_transport import HostArray, nbytes_of
from jitclient.wire.messages import INLINE_BYTES, Return, Run, Spec
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import MAX_LENT_BLOCKS, Block, Reader, copy_into, room_for, smallest_fitting

IDLE_SECONDS = 10.0
"""Seconds without use after which a block is returned to the daemon."""

_MAX_FREE_BLOCKS = 4


class Lender(Protocol):
    """Methods of the connection that leases need."""

    def lease(self, nbytes: int) -> Block | None:
        """Lease a block with room for `nbytes` bytes; return None if there is none."""

    def return_blocks(self, message: Return) -> None:
        """Return blocks to the daemon."""


class Blocks:
    """Blocks of one connection. Used under the session's lock, except where noted."""

    def __init__(self, lender: Lender, on_free: Callable[[], None]) -> None:
        self._lender = lender
        self._on_free = on_free
        self._free: list[Block] = []  # in order of their last use
        self._at_daemon: dict[int, Block] = {}  # at the daemon
        self._read: dict[int, tuple[Block, weakref.ref[HostArray]]] = {}
        self._retired: collections.deque[int] = collections.deque()

    # ---- around one exchange

    def load(self, message: Run, attachments: Sequence[HostArray]) -> Sequence[HostArray]:
        """Copy attachments into a block, named in the message; without a block, return them to follow the frame."""
        block = self._acquire(room_for([array.nbytes for array in attachments])) if attachments else None
        if block is None:
            return attachments
        copy_into(block, attachments)
        self._at_daemon[block.number] = block
        message.block = block.number
        return ()

    def loaded(self, number: int, sizes: Sequence[int]) -> list[HostArray]:
        """Return views of the arrays in a block at the daemon, unchanged until the block comes back or is lost."""
        read = Reader(self._at_daemon[number].readable()[0])
        return [read(size) for size in sizes]

    def lend_for_results(self, message: Run, specs: Sequence[Spec]) -> None:
        """Offer a block for the values that a message fetches, if they are large."""
        sizes = [size for size in map(nbytes_of, specs) if size > INLINE_BYTES]
        block = self._acquire(room_for(sizes)) if sizes else None
        if block is not None:
            self._at_daemon[block.number] = block
            message.into = block.number

    def reclaim(self, message: Run, reply: Reply) -> Reader | None:
        """Reclaim the blocks that an answer returns; return a reader of its values if they are in a block."""
        offered, loaded = self._at_daemon.pop(message.into, None), self._at_daemon.pop(message.block, None)
        back = [block for block in (offered, loaded if reply.returns_block else None) if block is not None]
        filled = back.pop(0) if reply.shared and back else None
        for block in back:
            self._add_free(block)
        if filled is None:
            return None
        whole, reference = filled.readable(self._on_free)
        self._read[filled.number] = filled, reference
        return Reader(whole)

    # ---- returning blocks

    def tidy(self, now: float | None = None) -> bool:
        """Return surplus free blocks to the daemon, and those that are idle at the time `now`.

        Returns:
            Whether free blocks are left, to check later.
        """
        self._settle()
        free = self._free
        surplus = [block for block in free if now is not None and now - block.used >= IDLE_SECONDS]
        surplus += [block for block in free if block not in surplus][
            : max(0, len(free) - len(surplus) - _MAX_FREE_BLOCKS)
        ]
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        if surplus or retired:
            self._free = [block for block in free if block not in surplus]
            self._lender.return_blocks(Return(tuple(block.number for block in surplus), tuple(retired)))
        return bool(self._free)

    def retire_read(self) -> None:
        """Retire the blocks being read before a fork, because the child may read them indefinitely. Needs no lock."""
        for number in list(self._read):
            # If the entry is gone, another thread noticed that the last reader is gone.
            if self._read.pop(number, None) is not None:
                self._retired.append(number)

    # ---- details

    def _acquire(self, nbytes: int) -> Block | None:
        self._settle()
        block = smallest_fitting(self._free, nbytes)
        if block is not None:
            self._free.remove(block)
            return block
        if len(self._free) + len(self._at_daemon) + len(self._read) >= MAX_LENT_BLOCKS:
            return None
        return self._lender.lease(nbytes)

    def _settle(self) -> None:
        for number, (block, whole) in dict(self._read).items():
            # If the entry is gone, `retire_read` retired the block.
            if whole() is None and self._read.pop(number, None) is not None:
                self._add_free(block)

    def _add_free(self, block: Block) -> None:
        block.used = monotonic()
        self._free.append(block)
        self._on_free()
