"""Handlers of the requests about named arrays: find, keep, forget, and list the holders."""

import logging
import time

from jitclient.errors import ArrayLost, ProtocolError
from jitclient.wire.named_arrays import Find, Found, Holdings, Keep, KeptInfo
from jitserver.daemon import array_usage
from jitserver.daemon.arrays.named_arrays import NamedArrays, NamedTree
from jitserver.daemon.sessions.registry import Sessions
from jitserver.daemon.sessions.session import Session
from jitserver.programs import context
from jitserver.programs.engine import Engine

log = logging.getLogger(__name__)

# A difference beyond this number of seconds means that the clock was set.
_SET_SECONDS = 60.0


class Naming:
    """The daemon's named arrays, and the handlers of requests about them."""

    def __init__(self, engine: Engine, sessions: Sessions) -> None:
        self.named = NamedArrays()
        self._engine = engine
        self._sessions = sessions
        self._ahead = _ahead()

    def find(self, session: Session, find: Find) -> Found | None:
        """Give a session handles on the tree under a name, if its key matches.

        Raises:
            ArrayLost: the request accepts any key, and the tree is lost.
        """
        kept = self.named
        found = kept.get(find.name) if find.key is None else kept.find(find.name, self._key(find), find.ttl)
        if found is None:
            return None
        if not self._is_here(find.name, found):
            if find.key is None and found.why_lost:
                raise ArrayLost(f"the arrays kept as {find.name!r} are lost: {found.why_lost}")
            return None
        session.keep(find.first, found.arrays)
        return Found(found.specs, found.tree)

    def keep(self, session: Session, keep: Keep) -> None:
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
        self.named.put(keep.name, NamedTree(self._key(keep), keep.specs, keep.tree, keep.label, arrays, keep.ttl))

    def forget(self, name: str) -> list[KeptInfo]:
        """Remove a name, and return the description of its tree in a list; an empty list if there is none."""
        gone = self.named.forget(name)
        self._sessions.last_change = time.monotonic()  # the idle time starts now
        return [] if gone is None else [array_usage.info(self._engine, name, gone)]

    def expire(self) -> None:
        """Remove the names that were unused for longer than their time to live.

        Changes of the system clock do not count as elapsed time.
        """
        before, self._ahead = self._ahead, _ahead()
        if abs(self._ahead - before) > _SET_SECONDS:
            log.info("the clock was set by %.0f s", self._ahead - before)
            self.named.shift(self._ahead - before)
        for name in self.named.expire(lambda tree: array_usage.is_held(tree, self._sessions.all())):
            log.info("the arrays kept as %r are freed: they were not used within their time to live", name)
            self._sessions.last_change = time.monotonic()

    def holdings(self) -> Holdings:
        """Return the holders of the arrays on this daemon."""
        found = array_usage.usage(self._engine, self.named, self._sessions.all(), self._sessions.budget.most)
        found.disk_nbytes = self._engine.cache.store.other_bytes()
        return found

    def _is_here(self, name: str, tree: NamedTree) -> bool:
        """Load a tree that the previous daemon saved; return False if its arrays are lost."""
        on_disk = tree.on_disk
        if on_disk is not None:
            self._sessions.budget.take(on_disk.missing_bytes(), f"what is kept as {name!r}")
        return self.named.load(name, tree)

    def _key(self, message: Find | Keep) -> str:
        """Return the key of a tree: the client's key, if any, with the daemon's versions of packages."""
        versions = context.packages().versions(message.packages)
        return (
            " ".join([message.key, *(f"{name}={version}" for name, version in versions.items())]) if message.key else ""
        )


def _ahead() -> float:
    """Return the wall-clock time minus the time since boot, which changes only when the clock is set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
