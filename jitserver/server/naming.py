"""What clients ask of kept arrays: to find them, to keep others, to see who holds what."""

import logging
import time

from jitclient.errors import ProtocolError
from jitclient.wire.named_arrays import Find, Found, Holdings, Keep, KeptInfo
from jitserver.arrays.named_arrays import NamedArrays, NamedTree
from jitserver.engine import context
from jitserver.engine.engine import Engine
from jitserver.server import array_usage
from jitserver.sessions.registry import Sessions
from jitserver.sessions.session import Session

log = logging.getLogger(__name__)


class Naming:
    """The names of a daemon, with its sessions and the engine that has the arrays."""

    def __init__(self, engine: Engine, sessions: Sessions) -> None:
        self.named = NamedArrays()
        self._engine = engine
        self._sessions = sessions

    def find(self, session: Session, find: Find) -> Found | None:
        """Gives a session what a name holds, if it is what was asked for."""
        kept = self.named
        found = kept.get(find.name) if find.key is None else kept.find(find.name, self._key(find), find.ttl)
        if found is None or not self._is_here(find.name, found):
            return None
        session.keep(find.first, found.arrays)
        return Found(found.specs, found.tree)

    def keep(self, session: Session, keep: Keep) -> None:
        """Lets a name hold arrays of a session.

        Raises:
            ArrayLost, Failed: the session has no such arrays; the name holds what it held.
            ProtocolError: they are others than the message says.
        """
        arrays = [session.array(handle) for handle in keep.handles]
        if [(array.shape, str(array.dtype)) for array in arrays] != [(spec.shape, spec.dtype) for spec in keep.specs]:
            raise ProtocolError("these are not the arrays of these specs")
        for array in arrays:
            self._engine.share(array.block_until_ready())  # what failed is nothing to keep
        self.named.put(keep.name, NamedTree(self._key(keep), keep.specs, keep.tree, keep.label, arrays, keep.ttl))

    def forget(self, name: str) -> list[KeptInfo]:
        """Lets a name hold nothing any more; returns what it held."""
        gone = self.named.forget(name)
        self._sessions.last_change = time.monotonic()  # from here on the daemon may be idle
        return [] if gone is None else [array_usage.info(self._engine, name, gone)]

    def expire(self) -> None:
        """Forgets the names that nobody has used for too long."""
        for name in self.named.expire(lambda tree: array_usage.is_held(tree, self._sessions.all())):
            log.info("nobody has used the arrays kept as %r for long: they are freed", name)
            self._sessions.last_change = time.monotonic()

    def holdings(self) -> Holdings:
        """Who holds the arrays that live here."""
        return array_usage.usage(self._engine, self.named, self._sessions.all(), self._sessions.budget.most)

    def _is_here(self, name: str, tree: NamedTree) -> bool:
        """Has a tree in memory that the daemon before left on the disk."""
        on_disk = tree.on_disk
        if on_disk is not None:
            self._sessions.budget.take(on_disk.missing_bytes(), f"what is kept as {name!r}")
        return self.named.load(name, tree)

    def _key(self, message: Find | Keep) -> str:
        """With the versions of packages, as they are here, the key of what a name may hold."""
        versions = context.packages().versions(message.packages)
        return (
            " ".join([message.key, *(f"{name}={version}" for name, version in versions.items())]) if message.key else ""
        )
