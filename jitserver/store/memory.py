"""The memory tier: programs that are ready to run, with limits on bytes and on memory maps."""

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

from jitclient.wire.introspection import EntryInfo
from jitserver.store.entry import Entry, Recipe, eviction_score

_TRIM_FRACTION = 0.9
_COUNT_EVERY = 16


def maps_of_process() -> int:
    """Return the number of memory maps of this process; 0 if unknown.

    Each program needs some, and a process that reaches the kernel's limit crashes.
    """
    try:
        with open("/proc/self/maps", "rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


class MemoryTier:
    """Programs in memory by call key, at most `max_bytes` of them. Thread-safe.

    Over a limit, programs that no session holds are evicted first. A program that a session holds releases its
    executable instead (is unloaded), and continues as the same object when it is reloaded: from the disk or, if it is
    not there, from its recipe.
    """

    def __init__(self, max_bytes: int, max_maps: int, count_maps: Callable[[], int] = maps_of_process) -> None:
        self.max_bytes = max_bytes
        self.max_maps = max_maps
        self._count_maps = count_maps
        self._nbytes = 0
        self._entries: dict[str, Entry] = {}
        self._unloaded: weakref.WeakValueDictionary[str, Entry] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._added = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """The total size of the programs in bytes."""
        return self._nbytes

    def get(self, key: str) -> Entry | None:
        """Return the program of a key."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> Entry:
        """Add a program, and evict others to make room for it.

        Returns:
            The program's entry: an existing one if sessions hold the program while it is unloaded.
        """
        with self._lock:
            self._pop(entry.key)
            unloaded = self._unloaded.pop(entry.key, None)
            if unloaded is not None:
                unloaded.program.reload(entry.program)
                unloaded.info = entry.info
                entry = unloaded
            self._entries[entry.key] = entry
            self._nbytes += entry.nbytes
            entry.info.in_memory = True
            self._added += 1
            self._limit()
            if self._added % _COUNT_EVERY == 0:
                share = self.max_maps / max(1, self._count_maps())
                if share < 1:
                    self._trim(self.nbytes, len(self._entries) * share * _TRIM_FRACTION)
            return entry

    def trim(self) -> None:
        """Evict programs if they exceed the limit on bytes, because sessions have ended or become idle."""
        with self._lock:
            self._limit()

    def allow_eviction(self, key: str, recipe_of: Callable[[str], Recipe | None] = lambda key: None) -> bool:
        """Prepare for the eviction of a program from disk: if a session holds it, keep its recipe.

        Returns:
            Whether the program may leave the disk. False if a session holds it, its only executable is there, and it
            has no recipe.
        """
        entry = self._unloaded.get(key) or self._entries.get(key)
        if entry is None:
            return True
        recipe = recipe_of(key) if entry.holders else None
        with self._lock:
            entry.recipe = recipe
            if key in self._unloaded and recipe is None:
                return False
            entry.info.disk_bytes = 0
            return True

    def recipe(self, key: str) -> Recipe | None:
        """Return the recipe of an unloaded program, if it has one."""
        entry = self._unloaded.get(key)
        return None if entry is None else entry.recipe

    def remove(self, keys: Iterable[str]) -> None:
        """Remove programs, if they are in memory."""
        with self._lock:
            for key in keys:
                self._pop(key)

    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Pin programs, which protects them from eviction, or unpin them."""
        for entry in filter(None, map(self.get, keys)):
            entry.info.pinned = pinned

    def entries(self) -> list[Entry]:
        """Return the entries of all programs."""
        with self._lock:
            return list(self._entries.values())

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty."""
        found = [entry.info for entry in self.entries()]
        return [info for info in found if info.key.startswith(prefix) or info.name == prefix]

    def of_base(self, base: str) -> list[EntryInfo]:
        """Return the programs of a base key, which differ in their manifests."""
        return [entry.info for entry in self.entries() if entry.info.base == base]

    def _pop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._nbytes -= entry.nbytes
            entry.info.in_memory = False

    def _limit(self) -> None:
        if self._nbytes > self.max_bytes:
            self._trim(self.max_bytes * _TRIM_FRACTION, len(self._entries))

    def _trim(self, max_bytes: float, max_entries: float) -> None:
        now = time.time()
        for entry in sorted(
            self._entries.values(), key=lambda entry: (bool(entry.holders), eviction_score(entry.info, now))
        ):
            if self.nbytes <= max_bytes and len(self._entries) <= max_entries:
                return
            if entry.is_evictable():
                self._pop(entry.key)
                if entry.holders:
                    entry.unload(entry)
                    self._unloaded[entry.key] = entry


def maps_share() -> int:
    """Return the default limit on memory maps: half of the kernel's limit."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text()) // 2
    except (OSError, ValueError):
        return 1 << 15
