"""The state of packages in this process, as digests that are equal in every process with the same state."""

from collections.abc import Iterable

from jitclient.capture.manifest.changes import places_in, remove_places
from jitclient.capture.manifest.definitions import Tree
from jitclient.capture.manifest.places import ABSENT, CACHE, CHANGED_PLACES, is_of_thread, plain_name, resolve
from jitclient.capture.manifest.trees import ABSENT_DIGEST, OPAQUE, Described, digest_of_tree


class Digests:
    """Digests of descriptions under names; each description that several names share is digested once.

    The descriptions must live as long as this object.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], bytes] = {}

    def under(self, name: str, tree: Tree) -> bytes:
        """Return the digest of the description of the value under a name."""
        # Thread-local data that is empty equals absent data: a thread makes it on first use.
        if type(tree) is tuple and len(tree) == 1 and is_of_thread(name):
            return ABSENT_DIGEST
        _, is_counted, changing = name.partition(CHANGED_PLACES)
        key = id(tree), is_counted + changing
        if key not in self._known:
            self._known[key] = digest_of_tree(remove_places(tree, places_in(changing)) if is_counted else tree)
        return self._known[key]


def state_of(names: Iterable[str]) -> tuple[bytes, ...]:
    """Return the digest of the data under each name."""
    described, digests = Described(), Digests()
    return tuple(_digest_at(name, described, digests) for name in names)


def _digest_at(name: str, described: Described, digests: Digests) -> bytes:
    try:
        value = resolve(name)
        return ABSENT_DIGEST if value is ABSENT else digests.under(name, described.tree(value))
    except Exception:
        return OPAQUE


def is_exact(name: str, *digests: bytes) -> bool:
    """Return whether digests under a name cover all of its data: no cache, no counter, and no opaque value."""
    return not (name.endswith(CACHE) or CHANGED_PLACES in name) and OPAQUE not in digests


def packages_of(names: Iterable[str]) -> set[str]:
    """Return the packages with which names begin."""
    return {plain_name(name).partition(":")[0].partition(".")[0] for name in names}


def covers(names: Iterable[str], module: str, path: str) -> bool:
    """Return whether one of the names leads to a path of attributes in a module, or to an object that it goes through.

    Args:
        names: The names.
        module: The name of the module.
        path: The attributes, separated by dots.
    """
    parts = path.split(".")
    above = {f"{module}:{'.'.join(parts[:end])}" for end in range(1, len(parts) + 1)}
    return any(plain_name(name) in above for name in names)
