"""Handlers of the requests about named arrays: find, keep, forget, and list the holders."""

import logging
import time
from collections.abc import Mapping

from jitclient.errors import ArrayLost, ProtocolError
from jitclient.wire.named_arrays import Find, FoundArrays, Holdings, Keep, KeptInfo, MemoryUse
from jitserver.daemon import array_usage
from jitserver.daemon.arrays.budget import ArrayBudget, MemoryBudget
from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree
from jitserver.daemon.sessions.registry import Sessions
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs import context
from jitserver.programs.devices import memories
from jitserver.programs.engine import Engine

log = logging.getLogger(__name__)

# A difference beyond this number of seconds means that the clock was set.
_CLOCK_CHANGE_SECONDS = 60.0


class NamedArrayRequests:
    """The daemon's named arrays, and the handlers of requests about them."""

    def __init__(self, engine: Engine, sessions: Sessions) -> None:
        self.trees = NamedArrays()
        self._engine = engine
        self._sessions = sessions
        self._clock_offset = _clock_offset()
        self._limits: Mapping[int, int] = {}

    def find(self, session: DaemonSession, find: Find) -> FoundArrays | None:
        """Give a session handles on the tree under a name, if its key matches.

        Raises:
            ArrayLost: the request accepts any key, and the tree is lost.
        """
        kept = self.trees
        found = kept.get(find.name) if find.key is None else kept.find(find.name, self._key(find), find.ttl)
        if found is None:
            return None
        if not self._is_here(find.name, found):
            if find.key is None and found.why_lost:
                raise ArrayLost(f"the arrays kept as {find.name!r} are lost: {found.why_lost}")
            return None
        session.keep(find.first, found.arrays)
        return FoundArrays(found.specs, found.tree)

    def keep(self, session: DaemonSession, keep: Keep) -> None:
        """Store arrays of a session under a name.

        Raises:
            ArrayLost: the session has no such arrays; the name is unchanged.
            Failed: the call that makes an array failed; the name is unchanged.
            ProtocolError: the arrays do not match the specs of the message.
        """
        arrays = [session.array(handle) for handle in keep.handles]
        if [(array.shape, str(array.dtype)) for array in arrays] != [(spec.shape, spec.dtype) for spec in keep.specs]:
            raise ProtocolError("the arrays to keep do not match their specs")
        for array in arrays:
            self._engine.share(array.block_until_ready())  # raises if the array could not be computed
        self.trees.put(keep.name, NamedTree(self._key(keep), keep.specs, keep.tree, keep.label, arrays, keep.ttl))

    def forget(self, name: str) -> list[KeptInfo]:
        """Remove a name, and return the description of its tree in a list; an empty list if there is none."""
        gone = self.trees.forget(name)
        self._sessions.last_change = time.monotonic()  # the idle time starts now
        return [] if gone is None else [array_usage.info(name, gone)]

    def expire(self) -> None:
        """Remove the names that were unused for longer than their time to live.

        Changes of the system clock do not count as elapsed time.
        """
        before, self._clock_offset = self._clock_offset, _clock_offset()
        if abs(self._clock_offset - before) > _CLOCK_CHANGE_SECONDS:
            log.info("named arrays: the system clock was set by %.0f s", self._clock_offset - before)
            self.trees.shift(self._clock_offset - before)
        for name in self.trees.expire(lambda tree: array_usage.is_held(tree, self._sessions.all())):
            log.info("named arrays: freed %r, which was not used within its time to live", name)
            self._sessions.last_change = time.monotonic()

    def holdings(self) -> Holdings:
        """Return the holders of the arrays on this daemon."""
        sessions, limits = self._sessions.all(), self._limits
        found = array_usage.usage(self.trees, sessions, sum(limits.values()) if limits else None)
        found.disk_nbytes = self._engine.cache.store.other_bytes()
        if len(limits) > 1:
            for memory in memories.of_process():
                here = array_usage.usage(self.trees, sessions, memory=memory.number)
                found.memories.append(MemoryUse(memory.where, here.nbytes, limits[memory.number]))
        return found

    def limit(self, limits: Mapping[int, int]) -> ArrayBudget:
        """Return a budget with these limits of the memories, that of the default device first."""
        self._limits = limits
        where = {memory.number: memory.where for memory in memories.of_process()}
        return ArrayBudget({memory: self._budget(memory, limit, where[memory]) for memory, limit in limits.items()})

    def _budget(self, memory: int, limit: int, where: str) -> MemoryBudget:
        return MemoryBudget(
            limit,
            lambda: array_usage.usage(self.trees, self._sessions.all(), limit, memory),
            lambda: self._sessions.end_longest_absent(memory),
            where,
        )

    def _is_here(self, name: str, tree: NamedTree) -> bool:
        """Load a tree that the previous daemon saved; return False if its arrays are lost."""
        on_disk = tree.on_disk
        if on_disk is not None:
            self._sessions.budget.take(on_disk.missing_bytes(), f"the arrays kept as {name!r}")
        return self.trees.load(name, tree)

    def _key(self, message: Find | Keep) -> str:
        """Return the key of a tree: the client's key, if any, with the daemon's versions of packages."""
        versions = context.packages().versions(message.packages)
        return (
            " ".join([message.key, *(f"{name}={version}" for name, version in versions.items())]) if message.key else ""
        )


def _clock_offset() -> float:
    """Return the wall-clock time minus the time since boot, which changes only when the clock is set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
