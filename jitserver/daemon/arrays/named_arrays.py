"""Named trees of arrays. They belong to the daemon and outlive the sessions that made them."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jitclient.wire.messages import Spec
from jitserver.daemon.arrays.on_disk import OnDisk
from jitserver.programs.exceptions import Failed

log = logging.getLogger(__name__)


class TreeState(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The data about a named tree, apart from its arrays, that is saved for the next daemon."""

    name: str
    key: str
    specs: tuple[Spec, ...]
    tree: bytes
    label: str
    ttl: float | None
    created: float
    last_used: float
    why_lost: str = ""


@dataclasses.dataclass
class NamedTree:
    """The tree under a name.

    Attributes:
        key: the digest of the tree's origin, which a request must match; empty: no request matches.
        specs: the specs of the arrays.
        tree: the structure, with references to the function's capture.
        label: the description of the tree in messages.
        arrays: the arrays in the order of the leaves.
        ttl: time to live in seconds since the last use; None: for ever.
        created: the time at which the tree was stored, in seconds since the epoch.
        last_used: the time of the last use, in seconds since the epoch.
        on_disk: the arrays that the previous daemon saved, until they are loaded at the first request.
        why_lost: the reason why there are no arrays, if a daemon could not save or load them. The name stays, to report
            it.
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
    why_lost: str = ""

    @classmethod
    def restored(cls, state: TreeState, on_disk: OnDisk) -> "NamedTree":
        """Return a tree that the previous daemon saved."""
        fields = msgspec.structs.asdict(state)
        del fields["name"]
        return cls(**fields, arrays=(), on_disk=on_disk)

    def state(self, name: str) -> TreeState:
        """Return the data to save for the next daemon about the tree under the name `name`."""
        return TreeState(name, **{field: getattr(self, field) for field in TreeState.__struct_fields__[1:]})

    def identities(self) -> set[int | str]:
        """Return identifiers of its arrays, for comparison with those of sessions; see `OnDisk`."""
        on_disk = self.on_disk
        return {*map(id, self.arrays), *(on_disk.identities() if on_disk is not None else ())}


class NamedArrays:
    """All named trees. A name holds a complete tree, or the reason why its tree is lost. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock  # wall-clock time, which advances while no daemon runs
        self._trees: dict[str, NamedTree] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def __len__(self) -> int:
        """Return the number of names that hold a tree."""
        return sum(not tree.why_lost for tree in self.all().values())

    def find(self, name: str, key: str, ttl: float | None) -> NamedTree | None:
        """Return the tree of a name if it has this key. This counts as a use, and sets the time to live."""
        with self._lock:
            found = self._trees.get(name)
            if found is None or not key or found.key != key:
                return None
            found.last_used, found.ttl = self._clock(), ttl
            return found

    def get(self, name: str) -> NamedTree | None:
        """Return the tree of a name, whatever its key. This counts as a use."""
        with self._lock:
            found = self._trees.get(name)
            if found is not None:
                found.last_used = self._clock()
            return found

    def put(self, name: str, tree: NamedTree) -> None:
        """Store a tree under a name, in place of any other tree."""
        tree.created = tree.last_used = self._clock()
        with self._lock:
            before, self._trees[name] = self._trees.get(name), tree
        _discard(before)

    def load(self, name: str, tree: NamedTree) -> bool:
        """Load the arrays of a tree that is on disk. If they are lost, record the reason and return False."""
        with self._loading:
            if tree.on_disk is not None:
                if self._trees.get(name) is not tree or tree.why_lost:  # it was removed, handed over, or lost
                    return False
                found = tree.on_disk.load()
                lost = [array.failure.text for array in found.values() if isinstance(array, Failed)]
                if lost:
                    tree.why_lost = lost[0]
                    log.warning("the arrays kept as %r are lost: %s", name, lost[0])
                else:
                    tree.arrays = [found[leaf] for leaf in range(len(tree.specs))]
                tree.on_disk.discard()
                tree.on_disk = None
        return not tree.why_lost and len(tree.arrays) == len(tree.specs)

    def restore(self, name: str, tree: NamedTree) -> None:
        """Put a tree from the previous daemon under its name."""
        with self._lock:
            self._trees[name] = tree

    def hand_over(self) -> dict[str, NamedTree]:
        """Give up all names, and return the trees that are not on disk."""
        with self._loading, self._lock:
            trees, self._trees = self._trees, {}
        return {name: tree for name, tree in trees.items() if tree.on_disk is None}

    def forget(self, name: str, only: NamedTree | None = None) -> NamedTree | None:
        """Remove a name, or only if its tree is `only`; return the tree if one was removed."""
        with self._lock:
            gone = self._trees.get(name)
            if gone is None or (only is not None and only is not gone):
                return None
            del self._trees[name]
        _discard(gone)
        return gone

    def expire(self, is_used: Callable[[NamedTree], bool]) -> list[str]:
        """Remove the trees whose time to live is over, and return their names. Holding a handle counts as a use."""
        now = self._clock()
        gone = []
        for name, tree in self.all().items():
            if tree.ttl is None or now - tree.last_used <= tree.ttl:
                continue
            if is_used(tree):
                tree.last_used = now
                continue
            # Check again: a request may have used it meanwhile.
            if now - tree.last_used > tree.ttl and self.forget(name, only=tree) is not None:
                gone.append(name)
        return gone

    def shift(self, seconds: float) -> None:
        """Shift all times by the number of seconds by which the clock was set."""
        for tree in self.all().values():
            tree.created += seconds
            tree.last_used += seconds

    def all(self) -> dict[str, NamedTree]:
        """Return the current trees by name."""
        with self._lock:
            return dict(self._trees)


def _discard(tree: NamedTree | None) -> None:
    if tree is not None and tree.on_disk is not None:
        tree.on_disk.discard()
