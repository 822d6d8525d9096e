"""Shared memory that the daemon lends to one connection: whose turn it is with each block.

A block is free here, or at the daemon with the arguments of a call, or read by this program, which has arrays that
are its bytes. It is written only by whoever has it; one that somebody may still read when nobody can tell any more (a
forked child, a connection that broke) is retired: nobody writes it again.
"""

import collections
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

from jitclient.wire.array_transport import HostArray, nbytes_of
from jitclient.wire.messages import INLINE_BYTES, Done, Return, Run, Spec
from jitclient.wire.shared_memory import MOST_LENT, Block, Reader, best, lay, room_for

IDLE_SECONDS = 10.0
"""A block that was free for so long goes back to the daemon."""

MOST_BESIDE_CALL = 2 << 20
"""Bytes of arguments up to which results of that size come with the answer: to copy more costs more than to ask."""

_MOST_FREE = 4
_MOST_READ = MOST_LENT // 2  # blocks that the program reads, from which on no large result comes unasked


class Lender(Protocol):
    """What a connection offers."""

    def lease(self, nbytes: int) -> Block | None:
        """A block with room for so many bytes, if there is one."""

    def give_back(self, message: Return) -> None:
        """Tells the daemon of blocks that are its own again."""


class Blocks:
    """Those of one connection. Used under the session's lock, but for what says otherwise."""

    def __init__(self, lender: Lender, on_free: Callable[[], None]) -> None:
        self._lender = lender
        self._on_free = on_free
        self._free: list[Block] = []  # the one used last is the last
        self._away: dict[int, Block] = {}  # at the daemon
        self._read: dict[int, tuple[Block, weakref.ref[HostArray]]] = {}
        self._retired: collections.deque[int] = collections.deque()

    # ---- around one exchange

    def load(self, message: Run, attachments: Sequence[HostArray]) -> Sequence[HostArray]:
        """Copies what goes with a message into a block that the message names; else returns it, to follow the frame."""
        block = self._take(room_for([array.nbytes for array in attachments])) if attachments else None
        if block is None:
            return attachments
        lay(block, attachments)
        self._away[block.number] = block
        message.block = block.number
        return ()

    def room_beside(self, attachments: Sequence[HostArray]) -> int:
        """Bytes of results that may come unasked, in the block of a call's arguments."""
        self._settle()
        nbytes = sum(array.nbytes for array in attachments)
        return nbytes if nbytes <= MOST_BESIDE_CALL and len(self._read) < _MOST_READ else 0

    def loaded(self, number: int, sizes: Sequence[int]) -> list[HostArray]:
        """The bytes that are in a block at the daemon, where they stay as they are until it is back, or lost."""
        read = Reader(self._away[number].readable()[0])
        return [read(size) for size in sizes]

    def offer(self, message: Run, specs: Sequence[Spec]) -> None:
        """Offers a block for the values that a message asks for, if they are large."""
        sizes = [size for size in map(nbytes_of, specs) if size > INLINE_BYTES]
        block = self._take(room_for(sizes)) if sizes else None
        if block is not None:
            self._away[block.number] = block
            message.into = block.number

    def landed(self, message: Run, done: Done) -> Reader | None:
        """Takes back what the answer says; returns what reads the values beside it, if they are in a block."""
        offered, loaded = self._away.pop(message.into, None), self._away.pop(message.block, None)
        back = [block for block in (offered, loaded if done.back else None) if block is not None]
        filled = back.pop(0) if done.shared and back else None
        for block in back:
            self._add_free(block)
        if filled is None:
            return None
        whole, reference = filled.readable(self._on_free)
        self._read[filled.number] = filled, reference
        return Reader(whole)

    # ---- giving back

    def tidy(self, now: float | None = None) -> bool:
        """Gives back what is of no more use: more free blocks than a few, and those that were free for long by `now`.

        Returns:
            Whether any are left to be looked at later.
        """
        self._settle()
        free = self._free
        surplus = [block for block in free if now is not None and now - block.used >= IDLE_SECONDS]
        surplus += [block for block in free if block not in surplus][: max(0, len(free) - len(surplus) - _MOST_FREE)]
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        if surplus or retired:
            self._free = [block for block in free if block not in surplus]
            self._lender.give_back(Return(tuple(block.number for block in surplus), tuple(retired)))
        return bool(self._free)

    def retire_read(self) -> None:
        """A child is about to be forked: it may read for ever what this program reads now. Any thread, no lock."""
        for number in list(self._read):
            if self._read.pop(number, None) is not None:  # else another thread saw its last reader go
                self._retired.append(number)

    # ---- details

    def _take(self, nbytes: int) -> Block | None:
        self._settle()
        block = best(self._free, nbytes)
        if block is not None:
            self._free.remove(block)
            return block
        if len(self._free) + len(self._away) + len(self._read) >= MOST_LENT:
            return None
        return self._lender.lease(nbytes)

    def _settle(self) -> None:
        for number, (block, whole) in list(self._read.items()):
            if whole() is None and self._read.pop(number, None) is not None:  # else a fork has retired it
                self._add_free(block)

    def _add_free(self, block: Block) -> None:
        block.used = time.monotonic()
        self._free.append(block)
        self._on_free()
