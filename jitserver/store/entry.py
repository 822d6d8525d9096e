"""One cached program, in memory and on the disk, and what it is worth."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from jitclient.wire.messages import EntryInfo

OVERHEAD_BYTES = 1 << 20
"""What keeping any program costs beside the bytes of its own: files, rows, and JAX's objects around it."""

HALF_LIFE_SECONDS = 3 * 24 * 3600.0
_IDLE_SECONDS = 10.0
_FRESH_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Makeup:
    """What decided a call key.

    Attributes:
        rows: the digest of each row of the table of keys; two keys differ if and only if one of these does.
        parts: what the rows are made of, in words, encoded.
    """

    rows: Mapping[str, bytes]
    parts: bytes


@dataclasses.dataclass(frozen=True)
class Stored:
    """A program on the disk. `facts` and `request` are the engine's business; blobs go by digest, "" for none."""

    info: EntryInfo
    makeup: Makeup
    facts: bytes
    request: bytes
    executable: str = ""
    capture: str = ""

    @property
    def key(self) -> str:
        """The call key."""
        return self.info.key


@dataclasses.dataclass(eq=False)
class Entry:
    """A program in memory. The program itself is the engine's business.

    Attributes:
        rest: has the program let go of its executable, until it is called again.
        holders: the sessions that may call it.
    """

    info: EntryInfo
    program: Any
    makeup: Makeup
    rest: Callable[[], None] = lambda: None
    holders: set[Any] = dataclasses.field(default_factory=set)

    @property
    def key(self) -> str:
        """The call key."""
        return self.info.key

    @property
    def nbytes(self) -> int:
        """About how much memory it takes; on the CPU, JAX does not say how long machine code is."""
        return OVERHEAD_BYTES + self.info.code_bytes

    def can_leave(self) -> bool:
        """Whether memory can do without its executable: one that a session holds must be idle, and on the disk."""
        if self.info.pinned:
            return False
        if not self.holders:  # a session that has just asked for it is about to hold it
            return time.time() - self.info.last_used > _FRESH_SECONDS
        return bool(self.info.disk_bytes) and time.monotonic() - self.program.last_call > _IDLE_SECONDS


Known = Entry | Stored


def worth(info: EntryInfo, now: float) -> float:
    """The one rule by which the cache keeps, drops and loads first: seconds that it would take to make the program
    again, halved for every three days without use, for each byte that it takes.
    """
    age = max(0.0, now - info.last_used)
    recency: float = 0.5 ** (age / HALF_LIFE_SECONDS)
    return sum(info.seconds.values()) * recency / (info.disk_bytes + OVERHEAD_BYTES)
