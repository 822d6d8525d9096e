"""The cache: memory, then disk."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jitclient.wire.messages import EntryInfo
from jitserver.store.catalog import Use
from jitserver.store.disk import Store
from jitserver.store.entry import Entry, Known, Stored
from jitserver.store.memory import Memory
from jitserver.store.write_behind import Writer

log = logging.getLogger(__name__)


class Tiers:
    """Programs by call key, wherever they are. Safe to use from threads."""

    def __init__(self, memory: Memory, store: Store, writer: Writer) -> None:
        self.memory = memory
        self.store = store
        self._tiers: tuple[Memory | Store, ...] = (memory, store)  # the fastest first
        self.writer = writer
        self._counting = threading.Lock()

    # ---- programs

    def keep(self, entry: Entry, stored: Stored, executable: Callable[[], bytes], capture: bytes) -> Entry:
        """Holds a program that was just made, and has it written to the disk some time; returns the entry for it."""
        self.writer.add(entry.key, lambda: self.store.put(stored, executable(), capture))
        return self.memory.put(entry)

    def used(self, entry: Entry) -> float:
        """Notes that a program was asked for and found; returns the seconds that this saved."""
        info = entry.info
        saved = sum(info.seconds.values())
        with self._counting:
            info.hits += 1
            info.saved += saved
            info.last_used = time.time()
        self.store.used(Use(info.key, 1, saved, info.last_used))
        return saved

    def remove(self, prefix: str) -> list[EntryInfo]:
        """Forgets the programs that `infos` tells of, and returns those."""
        found = self.infos(prefix)
        keys = [info.key for info in found]
        for key in keys:
            self.writer.cancel(key)
        for tier in self._tiers:
            tier.remove(keys)
        return found

    def pin(self, prefix: str, pinned: bool) -> list[str]:
        """Has the programs that `infos` tells of stay, or lets them go again; returns their keys."""
        keys = [info.key for info in self.infos(prefix)]
        for tier in self._tiers:
            tier.pin(keys, pinned)
        return keys

    # ---- looking inside

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """The programs whose key starts with `prefix`, or whose function has that name; all where it is empty."""
        return list({info.key: info for tier in reversed(self._tiers) for info in tier.infos(prefix)}.values())

    def get(self, key: str) -> Known | None:
        """What is known of a program; it is not loaded."""
        return self.memory.get(key) or self.store.get(key)

    def names_of(self, base: str) -> list[tuple[str, ...]]:
        """Return the lists of names in the manifests of a base key's programs."""
        return [info.names for info in (*self.memory.of_base(base), *self.store.of_base(base))]

    def stored(self, key: str) -> Stored | None:
        """What the disk has of a program, once it is written if it is to be."""
        self.writer.wait_for(key)
        return self.store.get(key)

    def named(self, name: str) -> list[Known]:
        """Programs of that name, the ones used last first: some of them, where there are many."""
        found = {known.key: known for tier in reversed(self._tiers) for known in tier.named(name)}
        return sorted(found.values(), key=lambda known: -known.info.last_used)

    # ---- housekeeping

    def tidy(self) -> None:
        """Has what nobody needs deleted some time."""
        self.writer.add("", lambda: log.info("%d bytes of the disk freed", self.store.collect()))

    def close(self, seconds: float) -> bool:
        """Writes what is left to write; returns whether that took no longer than so many seconds."""
        done = self.writer.finish(seconds)
        timed = [entry for entry in self.memory.entries() if entry.program.slowest]
        for entry in timed:
            entry.info.slowest = entry.program.slowest
        self.store.note([entry.info for entry in timed])
        self.store.close()
        return done


def disk_share(folder: Path) -> int:
    """Bytes that the disk tier may take where nobody says: a tenth of what is free, ten GiB at most."""
    return min(10 << 30, shutil.disk_usage(folder).free // 10)
