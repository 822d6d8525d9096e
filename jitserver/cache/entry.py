"""One cached program with what people want to know of it."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from jitclient.wire.messages import EntryInfo
from jitserver.cache.call_key import Makeup
from jitserver.cache.eviction import OVERHEAD_BYTES

_IDLE_SECONDS = 10.0
_FRESH_SECONDS = 1.0


@dataclasses.dataclass(eq=False)
class Entry:
    """A program under its call key. The program itself is the engine's business.

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
