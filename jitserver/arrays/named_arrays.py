"""Trees of arrays under a name: the daemon's own, which outlive the sessions that made them."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jitclient.wire.messages import Spec
from jitserver.arrays.absent import Failed, OnDisk

log = logging.getLogger(__name__)


class TreeState(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """What the next daemon must know of a kept tree, apart from its arrays."""

    name: str
    key: str
    specs: tuple[Spec, ...]
    tree: bytes
    label: str
    ttl: float | None
    created: float
    last_used: float


@dataclasses.dataclass
class NamedTree:
    """What a name holds.

    Attributes:
        key: decides whether it is what somebody wants; empty: nobody can know.
        specs: of the arrays, as clients know them.
        tree: means something to the function's capture only.
        label: the tree, for people.
        ttl: seconds without a use after which it goes; None: never.
        on_disk: where the arrays are that a daemon before this one left, until somebody asks for them.
    """

    key: str
    specs: tuple[Spec, ...]
    tree: bytes
    label: str
    arrays: Sequence[Any]
    ttl: float | None
    created: float = 0.0
    last_used: float = 0.0
    on_disk: OnDisk | None = None

    @classmethod
    def restored(cls, state: TreeState, on_disk: OnDisk) -> "NamedTree":
        """The tree that a name held in the previous daemon."""
        fields = msgspec.structs.asdict(state)
        del fields["name"]
        return cls(**fields, arrays=(), on_disk=on_disk)

    def state(self, name: str) -> TreeState:
        """What the next daemon must know of the tree, which is held under `name`."""
        return TreeState(name, **{field: getattr(self, field) for field in TreeState.__struct_fields__[1:]})

    def identities(self) -> set[int | str]:
        """What its arrays are known by, for comparison with those of sessions; see `OnDisk`."""
        on_disk = self.on_disk
        return {*map(id, self.arrays), *(on_disk.identities() if on_disk is not None else ())}


class NamedArrays:
    """All of them, by name. A name holds a whole tree, or nothing. Safe to use from many threads."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock  # that of the wall, which goes on while no daemon runs
        self._trees: dict[str, NamedTree] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def __len__(self) -> int:
        return len(self._trees)

    def find(self, name: str, key: str, ttl: float | None) -> NamedTree | None:
        """What a name holds, if it is what that key is of. That is a use of it, and sets its time to live."""
        with self._lock:
            found = self._trees.get(name)
            if found is None or not key or found.key != key:
                return None
            found.last_used, found.ttl = self._clock(), ttl
            return found

    def get(self, name: str) -> NamedTree | None:
        """What a name holds, whatever that is. That is a use of it."""
        with self._lock:
            found = self._trees.get(name)
            if found is not None:
                found.last_used = self._clock()
            return found

    def put(self, name: str, tree: NamedTree) -> None:
        """Lets a name hold a tree, and nothing else any more."""
        tree.created = tree.last_used = self._clock()
        with self._lock:
            before, self._trees[name] = self._trees.get(name), tree
        _discard(before)

    def load(self, name: str, tree: NamedTree) -> bool:
        """Has the arrays of a tree in memory; False where they are lost, and the name is forgotten."""
        with self._loading:
            if tree.on_disk is not None:
                if self._trees.get(name) is not tree:  # it was forgotten, or left to the next daemon
                    return False
                found = tree.on_disk.load()
                if not any(isinstance(array, Failed) for array in found.values()):
                    tree.arrays = [found[leaf] for leaf in range(len(tree.specs))]
                tree.on_disk.discard()
                tree.on_disk = None
            if len(tree.arrays) == len(tree.specs):
                return True
        log.warning("what was kept as %r is lost", name)
        self._remove(name, tree)
        return False

    def restore(self, name: str, tree: NamedTree) -> None:
        """Let a name hold what it held in the previous daemon."""
        with self._lock:
            self._trees[name] = tree

    def hand_over(self) -> dict[str, NamedTree]:
        """Give up all names, and return the trees that are not on the disk."""
        with self._loading, self._lock:
            trees, self._trees = self._trees, {}
        return {name: tree for name, tree in trees.items() if tree.on_disk is None}

    def forget(self, name: str) -> NamedTree | None:
        """What the name held; it holds nothing any more."""
        with self._lock:
            gone = self._trees.pop(name, None)
        _discard(gone)
        return gone

    def expire(self, is_used: Callable[[NamedTree], bool]) -> list[str]:
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

    def _remove(self, name: str, tree: NamedTree) -> bool:
        with self._lock:
            if self._trees.get(name) is not tree:
                return False
            del self._trees[name]
        _discard(tree)
        return True

    def all(self) -> dict[str, NamedTree]:
        """What each name holds now."""
        with self._lock:
            return dict(self._trees)


def _discard(tree: NamedTree | None) -> None:
    if tree is not None and tree.on_disk is not None:
        tree.on_disk.discard()
