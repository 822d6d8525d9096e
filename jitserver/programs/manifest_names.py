"""Which names the manifests of a base key have: those of programs here, and those that the lab's cache lists."""

import threading

from jitclient.wire.messages import MAX_LISTS
from jitserver.store.tiers import Tiers


class ManifestNames:
    """Lists of names by base key. A client must send its state of each list before its program can be looked up.

    Thread-safe.
    """

    def __init__(self, cache: Tiers) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._known: dict[str, set[tuple[str, ...]]] = {}
        # Seconds that making the programs took which the lab's cache lists; empty if it lists none.
        self._shared: dict[str, dict[tuple[str, ...], float]] = {}

    def lists_of(self, base: str) -> list[tuple[str, ...]]:
        """Return the lists of names in a key's manifests, the longest (most specific) first, at most `MAX_LISTS`."""
        known = self._known.get(base)
        if known is None:
            known = self._known.setdefault(base, set(self._cache.names_of(base)))
        return sorted(known, key=lambda names: (-len(names), names))[:MAX_LISTS]

    def note(self, base: str, names: tuple[str, ...]) -> None:
        """Add a list of names."""
        self.lists_of(base)
        with self._lock:
            self._known[base] = {*self._known[base], names}

    def ask_share(self, base: str) -> bool:
        """Ask the lab's cache for the lists of a base key, once; return whether it has any."""
        if self._cache.share is None or base in self._shared:
            return False
        self._shared[base] = self._cache.share.lists_of(base)
        for names in self._shared[base]:
            self.note(base, names)
        return bool(self._shared[base])

    def seconds_shared(self, base: str) -> float | None:
        """Return what making a program of a base key took that the lab's cache may have; None if it lists none."""
        return max(self._shared.get(base, {}).values(), default=None)
