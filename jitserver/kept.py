"""Trees of arrays under a name: the daemon's own, which outlive the sessions that made them."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from jitclient.wire.messages import Spec

log = logging.getLogger(__name__)


class Away(Protocol):
    """The arrays of a tree while they are on the disk."""

    def load(self) -> Sequence[Any]:
        """Has them back."""

    def discard(self) -> None:
        """Nobody will ask for them."""


@dataclasses.dataclass
class KeptTree:
    """What a name holds.

    Attributes:
        key: decides whether it is what somebody wants; empty: nobody can know.
        specs: of the arrays, as clients know them.
        tree: means something to the function's capture only.
        label: the tree, for people.
        ttl: seconds without a use after which it goes; None: never.
        away: where the arrays are that a daemon before this one left, until somebody asks for them.
        expected: so many times sessions, which hold some of the arrays, have yet to ask for one.
    """

    key: str
    specs: tuple[Spec, ...]
    tree: bytes
    label: str
    arrays: Sequence[Any]
    ttl: float | None
    created: float = 0.0
    last_used: float = 0.0
    away: Away | None = None
    expected: int = 0


class Kept:
    """All of them, by name. A name holds a whole tree, or nothing. Safe to use from many threads."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock  # that of the wall, which goes on while no daemon runs
        self._trees: dict[str, KeptTree] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def __len__(self) -> int:
        return len(self._trees)

    def find(self, name: str, key: str, ttl: float | None) -> KeptTree | None:
        """What a name holds, if it is what that key is of. That is a use of it, and sets its time to live."""
        with self._lock:
            found = self._trees.get(name)
            if found is None or not key or found.key != key:
                return None
            found.last_used, found.ttl = self._clock(), ttl
            return found

    def get(self, name: str) -> KeptTree | None:
        """What a name holds, whatever that is. That is a use of it."""
        with self._lock:
            found = self._trees.get(name)
            if found is not None:
                found.last_used = self._clock()
            return found

    def put(self, name: str, tree: KeptTree) -> None:
        """Lets a name hold a tree, and nothing else any more."""
        tree.created = tree.last_used = self._clock()
        with self._lock:
            before, self._trees[name] = self._trees.get(name), tree
        self._discard(name, before)

    def holds(self, name: str, tree: KeptTree) -> bool:
        """Whether it is that tree that a name holds."""
        return self._trees.get(name) is tree

    def load(self, name: str, tree: KeptTree) -> bool:
        """Has the arrays of a tree in memory; False where they are lost, and the name is forgotten."""
        with self._loading:
            if tree.away is not None:
                try:
                    tree.arrays = tree.away.load()
                except Exception as error:  # it is damaged, or there is no such device or memory any more
                    log.warning("what was kept as %r is lost: it cannot be read: %s", name, error)
                    tree.away.discard()
                tree.away = None
            if len(tree.arrays) >= len(tree.specs):
                return True
        self._remove(name, tree)
        return False

    def expect(self, name: str, created: float) -> KeptTree | None:
        """What a name held in the daemon before, made at that time, for a session that is to come for it."""
        with self._lock:
            tree = self._trees.get(name)
            if tree is None or tree.created != created:
                return None
            tree.expected += 1
            return tree

    def came_for(self, tree: KeptTree) -> None:
        """A session that was expected has what it holds of a tree, or will never come."""
        with self._lock:
            tree.expected -= 1

    def take_back(self, trees: Iterable[tuple[str, KeptTree]]) -> None:
        """Goes on with what the daemon before kept."""
        with self._lock:
            self._trees |= dict(trees)

    def forget(self, name: str) -> KeptTree | None:
        """What the name held; it holds nothing any more."""
        with self._lock:
            gone = self._trees.pop(name, None)
        self._discard(name, gone)
        return gone

    def expire(self, is_used: Callable[[KeptTree], bool]) -> list[str]:
        """Forgets the trees that nobody has used for too long, and returns their names; to hold a handle is a use."""
        now = self._clock()
        gone = []
        for name, tree in self.all().items():
            if tree.ttl is None or now - tree.last_used <= tree.ttl:
                continue
            if is_used(tree):
                tree.last_used = now
                continue
            if now - tree.last_used > tree.ttl and self._remove(name, tree):  # still so
                gone.append(name)
        return gone

    def _remove(self, name: str, tree: KeptTree) -> bool:
        with self._lock:
            if self._trees.get(name) is not tree:
                return False
            del self._trees[name]
        self._discard(name, tree)
        return True

    def _discard(self, name: str, tree: KeptTree | None) -> None:
        if tree is None or tree.away is None:
            return
        if tree.expected:
            self.load(name, tree)  # for those who hold some of it
        else:
            tree.away.discard()

    def all(self) -> dict[str, KeptTree]:
        """What each name holds now."""
        with self._lock:
            return dict(self._trees)
