"""Which names the manifests of a base key have: those of programs here, and those that the lab's cache lists."""

import threading

from jitclient.wire.messages import MAX_LISTS
from jitserver.programs.keys import CallKey
from jitserver.programs.latest import Latest
from jitserver.store.tiers import Tiers

_MOST = 16_384
"""Base keys whose lists are remembered. Those of others are read again; only what was refused is then traced again."""


class ManifestNames:
    """Lists of names by base key. A client must send its state of each list before its program can be looked up.

    Thread-safe.
    """

    def __init__(self, cache: Tiers) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._known = Latest[str, frozenset[tuple[str, ...]]](_MOST)
        # Seconds that making the programs took which the lab's cache lists; empty if it lists none.
        self._shared = Latest[str, dict[tuple[str, ...], float]](_MOST)

    def lists_of(self, base: str) -> list[tuple[str, ...]]:
        """Return the lists of names in a key's manifests, the longest (most specific) first, at most `MAX_LISTS`."""
        return sorted(self._known_of(base), key=lambda names: (-len(names), names))[:MAX_LISTS]

    def note(self, base: str, names: tuple[str, ...]) -> None:
        """Add a list of names."""
        with self._lock:
            self._known.put(base, self._known_of(base) | {names})

    def look_again(self, base: CallKey) -> bool:
        """Look for lists of a base key that others have added; return whether there are any.

        On the disk, these are what `jitserver cache copy` has brought since the last look. The
        lab's cache is asked once.
        """
        new = set(self._cache.names_of(base.text)) - self._known_of(base.text)
        if self._cache.share is not None and base.text not in self._shared:
            found = self._cache.share.lists_of(base.components().portable_base)
            self._shared.put(base.text, found)
            new |= found.keys()
        for names in new:
            self.note(base.text, names)
        return bool(new)

    def seconds_shared(self, base: str) -> float | None:
        """Return what making a program of a base key took that the lab's cache may have; None if it lists none."""
        return max((self._shared.get(base) or {}).values(), default=None)

    def _known_of(self, base: str) -> frozenset[tuple[str, ...]]:
        known = self._known.get(base)
        return self._known.setdefault(base, frozenset(self._cache.names_of(base))) if known is None else known
