"""The cache: the memory tier, then the disk tier, then the lab's."""

import functools
import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from jitclient.wire.introspection import EntryInfo
from jitserver.store.catalog import Use
from jitserver.store.disk import Store
from jitserver.store.entry import MAX_RECIPE_BYTES, Entry, Recipe, Stored
from jitserver.store.memory import MemoryTier
from jitserver.store.share.lab import Lab
from jitserver.store.write_behind import Writer

log = logging.getLogger(__name__)

_MIN_DISK_BYTES = 64 << 20


class LoadedProgram(NamedTuple):
    """A program outside of the memory, with its executable, if there is one, and whether the lab's cache had it."""

    stored: Stored
    executable: bytes | memoryview | None
    is_shared: bool = False


class Tiers:
    """Programs by call key, in memory, on disk, and in the lab's cache. Thread-safe."""

    def __init__(self, memory: MemoryTier, store: Store, writer: Writer, lab: Lab | None = None) -> None:
        self.memory = memory
        self.store = store
        self.share = None if lab is None else lab.share
        self._tiers: tuple[MemoryTier | Store, ...] = (memory, store)  # fastest first
        self.writer = writer
        self._uploads = None if lab is None else lab.uploads
        self._counting = threading.Lock()

    # ---- programs

    def keep(
        self,
        entry: Entry,
        stored: Stored,
        executable: Callable[[], bytes],
        capture: bytes,
        trace: Callable[[], bytes] = bytes,
        on_disk: bool = True,
    ) -> Entry:
        """Add a new program to memory, and schedule its write to disk.

        Args:
            entry: the program in memory.
            stored: its description on disk.
            executable: returns the serialized executable; called later, on the writer's thread.
            capture: the capture's bytes; empty if there is none.
            trace: serializes the program's trace for the lab's cache; called later, on a thread of its own.
            on_disk: whether other processes can find the program. If not, it is neither on disk nor in the lab's cache.

        Returns:
            The program's entry in memory, which sessions may already hold.
        """
        kept = self.memory.put(entry)

        def write() -> None:
            data = executable() if on_disk and (self.store.max_bytes or self._uploads is not None) else b""
            if on_disk and self.store.max_bytes:
                self.store.put(stored, data, capture)
            if on_disk and self._uploads is not None:
                self._uploads.add(entry.key, functools.partial(self._upload, stored, data, trace))
            has_recipe = not kept.info.disk_bytes and 0 < len(capture) <= MAX_RECIPE_BYTES
            kept.recipe = Recipe(stored, capture) if has_recipe else None

        self.writer.add(entry.key, write)
        return kept

    def _upload(self, stored: Stored, executable: bytes, trace: Callable[[], bytes]) -> None:
        if self.share is not None:
            self.share.put(stored, executable, trace)

    def load(self, key: str, seconds: float | None = None) -> LoadedProgram | None:
        """Return a program from the disk, or else from the lab's cache.

        Args:
            key: the call key.
            seconds: what making the program takes, if the lab's cache may have it.
        """
        stored = self.store.get(key)
        if stored is not None:
            return LoadedProgram(stored, self.store.blob(stored.executable))
        found = None if self.share is None or seconds is None else self.share.get(key, seconds)
        return None if found is None else LoadedProgram(*found, is_shared=True)

    def adopt(self, loaded: LoadedProgram) -> None:
        """Schedule the write to disk of a program that was found in the lab's cache, and runs here."""
        if self.share is not None and loaded.executable is not None:
            self.share.count_found(sum(loaded.stored.info.seconds.values()))
            self.writer.add(loaded.stored.key, lambda: self.store.put(loaded.stored, bytes(loaded.executable or b"")))

    def used(self, entry: Entry) -> float:
        """Count a hit of a program, and return the seconds that the hit saved."""
        info = entry.info
        saved = sum(info.seconds.values())
        with self._counting:
            info.hits += 1
            info.saved += saved
            info.last_used = time.time()
        self.store.used(Use(info.key, 1, saved, info.last_used))
        return saved

    def remove(self, prefix: str) -> list[EntryInfo]:
        """Remove the programs that `infos` returns for `prefix` from all tiers, and return their descriptions.

        An empty prefix removes the compilations by program text, too.
        """
        if not prefix:
            self.store.remove_compilations()
        found = self.infos(prefix)
        keys = [info.key for info in found]
        for key in keys:
            self.writer.cancel(key)
        for tier in self._tiers:
            tier.remove(keys)
        return found

    def pin(self, prefix: str, pinned: bool) -> list[str]:
        """Pin the programs that `infos` returns for `prefix`, or unpin them; return their keys."""
        keys = [info.key for info in self.infos(prefix)]
        for tier in self._tiers:
            tier.pin(keys, pinned)
        return keys

    # ---- looking inside

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty."""
        return list({info.key: info for tier in reversed(self._tiers) for info in tier.infos(prefix)}.values())

    def get(self, key: str) -> Entry | Stored | None:
        """Return a program from memory, or its description on disk without loading it; None if it is unknown."""
        return self.memory.get(key) or self.store.get(key)

    def names_of(self, base: str) -> list[tuple[str, ...]]:
        """Return the lists of names in the manifests of a base key's programs."""
        return [info.names for info in (*self.memory.of_base(base), *self.store.of_base(base))]

    def stored(self, key: str) -> Stored | None:
        """Return the description of a program on disk, after waiting for a pending write; None if it is not stored.

        A program that the disk does not have may have a recipe.
        """
        self.writer.wait_for(key)
        stored, recipe = self.store.get(key), self._recipe(key)
        return recipe.stored if stored is None and recipe is not None else stored

    def capture(self, stored: Stored) -> bytes | memoryview:
        """Return the capture of a program; empty if there is none."""
        recipe = None if stored.capture else self._recipe(stored.key)
        return recipe.capture if recipe is not None else self.store.blob(stored.capture) or b""

    def _recipe(self, key: str) -> Recipe | None:
        entry = self.memory.get(key)
        return self.memory.recipe(key) if entry is None else entry.recipe

    # ---- housekeeping

    def tidy(self) -> None:
        """Schedule the clean-up of the disk tier."""
        self.writer.add("", lambda: log.info("disk cache: freed %d bytes", self.store.collect()))

    def flush(self) -> None:
        """Schedule the write of the counted hits."""
        if self.store.has_uses:
            self.writer.add("hits", self.store.flush)

    def close(self, seconds: float) -> bool:
        """Finish pending writes, and close the disk tier.

        Returns:
            Whether the pending writes took no longer than `seconds`.
        """
        end = time.monotonic() + seconds
        done = self.writer.finish(seconds)
        if self._uploads is not None:
            self._uploads.finish(max(0.0, end - time.monotonic()))
        timed = [entry for entry in self.memory.entries() if entry.program.slowest]
        for entry in timed:
            entry.info.slowest = entry.program.slowest
        self.store.close([entry.info for entry in timed])
        return done


def disk_share(directory: Path) -> int:
    """Return the default limit of the disk tier: a tenth of the free space, at most 10 GiB.

    The tier is in use in any case: a disk without free space, as that of a read-only image, may hold programs.
    """
    return min(10 << 30, max(_MIN_DISK_BYTES, shutil.disk_usage(directory).free // 10))
