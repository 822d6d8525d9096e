"""Bounded disk tier: programs that outlive the daemon.

After an I/O error, look-ups miss and programs are not stored; writing is retried after 30 s. The same holds while the
storage hangs. Each operation runs under a deadline: no call waits for storage that does not answer.
"""

import contextlib
import dataclasses
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from jitclient.core.directories import captures_directory, compilations_directory, trim, tuning_directory, usage
from jitclient.wire.introspection import EntryInfo
from jitserver.store.blobs import Blobs
from jitserver.store.catalog import CATALOG, Catalog, Use, is_damage
from jitserver.store.checked_files import Corrupt
from jitserver.store.deadline import Deadlines
from jitserver.store.entry import MAX_RECIPE_BYTES, Recipe, Stored, eviction_score
from jitserver.store.environments import BLOBS, SharedLimit
from jitserver.store.eviction_log import EvictionLog

log = logging.getLogger(__name__)

_QUARANTINE = "quarantine"
"""Name of the directory for damaged files."""

_TRIM_FRACTION = 0.9
_MAX_STATES = 8
"""Maximum number of programs that differ only in the state of packages: if each run adds one, none is found again."""
_RETRY_SECONDS = 30.0
_READ_SECONDS = 2.0
"""Deadline of a look-up, for which a call waits."""
_READ_BYTES_PER_SECOND = 16 << 20
"""Speed of the slowest disk that is used: the deadline of a large blob is later."""
_WRITE_SECONDS = 30.0
"""Deadline of a change, for which no call waits."""


class _Restarted(Corrupt):
    """A damaged catalog was moved to quarantine, and the next operation begins a new one."""


_FAILURES = (OSError, sqlite3.Error, UnicodeDecodeError, Corrupt)

Found = TypeVar("Found")
Act = Callable[[Catalog, Blobs], Found]


class Store:
    """Programs on disk by call key, with a limit on their total size.

    Thread-safe; several daemons may share the directory. If the disk fails, look-ups miss and nothing is stored, with
    one warning, until the disk works again.
    """

    def __init__(
        self,
        directory: Path,
        max_bytes: int,
        allow_eviction: Callable[[str, Callable[[str], Recipe | None]], bool] = lambda key, recipe_of: True,
    ) -> None:
        """Create the tier; files are opened at the first access.

        Args:
            directory: the directory of this environment's cache.
            max_bytes: the approximate limit, a quarter of it for JAX's own cache. With 0, nothing is stored.
            allow_eviction: called with a program's key, and a function that returns the recipe of a key, before the
                program is evicted. If it returns False, the program stays on disk until it is removed explicitly.
        """
        self.compilations_directory = compilations_directory(directory)
        self.max_compilations_bytes = max_bytes // 4
        self.max_bytes = max_bytes - self.max_compilations_bytes
        self._allow_eviction = allow_eviction
        self.directory = directory
        self._quarantine = directory / _QUARANTINE
        self._deadlines = Deadlines()
        self._lock = threading.Lock()
        # Held by operations only, because opening may hang.
        self._opening = threading.Lock()
        self._opened: tuple[Catalog, Blobs] | None = None
        self._failed_at: float | None = None
        self._evictions = EvictionLog()
        self._uses: dict[str, Use] = {}
        self.other_bytes: Callable[[], int] = int
        """Function that returns the bytes of other data on the disk, such as checkpoints.

        Programs are evicted to make room for that data, down to a quarter of the limit.
        """
        self.shared: SharedLimit | None = None
        """The limit on the caches of all environments together, if it holds."""

    # ---- reading

    def get(self, key: str) -> Stored | None:
        """Return the program of a key."""
        return self._read(lambda catalog, _: catalog.find(key), None)

    def blob(self, digest: str) -> memoryview | None:
        """Return the blob of a digest; None if it is missing, damaged or unknown, or if the digest is empty."""
        nbytes = self._read(lambda catalog, _: catalog.blob_bytes(digest), None) if digest else None
        if nbytes is None:
            return None
        return self._read(lambda _, blobs: blobs.get(digest, nbytes), None, nbytes / _READ_BYTES_PER_SECOND)

    def recipe(self, key: str) -> Recipe | None:
        """Return the recipe of a program, unless it is large."""
        stored = self.get(key)
        if stored is None or stored.info.disk_bytes > MAX_RECIPE_BYTES:
            return None
        capture = self.blob(stored.capture)
        return None if capture is None else Recipe(stored, bytes(capture))

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty."""
        return self._read(lambda catalog, _: catalog.infos(prefix), [])

    def of_base(self, base: str) -> list[EntryInfo]:
        """Return the programs of a base key, which differ in their manifests."""
        return self._read(lambda catalog, _: catalog.of_base(base), [])

    @property
    def nbytes(self) -> int:
        """The total size of blobs and catalog in bytes."""
        return self._read(lambda catalog, _: catalog.total(), 0)

    # ---- writing

    def put(self, stored: Stored, executable: bytes = b"", capture: bytes = b"") -> Stored:
        """Store a program, with its executable and its capture unless they are empty, and evict others to make room.

        Returns:
            The program with the digests of its blobs; unchanged if it could not be stored.
        """

        def act(catalog: Catalog, blobs: Blobs) -> Stored:
            digests = [blobs.put(data) if data else "" for data in (executable, capture)]
            sizes = {digest: len(data) for digest, data in zip(digests, (executable, capture), strict=True) if data}
            info = stored.info
            info.disk_bytes = sum(sizes.values())
            kept = dataclasses.replace(stored, executable=digests[0], capture=digests[1])
            catalog.add(kept, sizes)
            return kept

        kept = self._write(act)
        if self.shared is not None:
            self.shared.unmeasured_bytes += stored.info.disk_bytes
        if stored.info.names:
            self._evict(self._older_states(stored.info))
        self.trim()
        return kept or stored

    def _older_states(self, new: EntryInfo) -> list[str]:
        same = [info for info in self.of_base(new.base) if info.names == new.names and not info.pinned]
        return [info.key for info in sorted(same, key=lambda info: info.last_used)[:-_MAX_STATES]]

    def used(self, use: Use) -> None:
        """Count hits of a program in memory; `flush` writes them to the catalog."""
        with self._lock:
            before = self._uses.get(use.key, Use(use.key, 0, 0.0, 0.0))
            self._uses[use.key] = Use(use.key, before.hits + use.hits, before.saved + use.saved, use.last_used)

    @property
    def has_uses(self) -> bool:
        """Whether hits were counted since the last flush."""
        return bool(self._uses)

    def flush(self, seconds: float = _WRITE_SECONDS) -> None:
        """Write the hits counted since the last flush to the catalog, within `seconds`."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if uses:
            self._write(lambda catalog, _: catalog.use(uses.values()), seconds)

    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Pin programs, which protects them from eviction, or unpin them."""
        self._write(lambda catalog, _: catalog.pin(keys, pinned))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove programs, and delete the blobs that no remaining program needs."""
        gone = list(keys)

        def act(catalog: Catalog, blobs: Blobs) -> None:
            for digest in catalog.remove(gone):
                blobs.remove(digest)

        if gone:
            self._write(act)

    def remove_compilations(self) -> None:
        """Delete the compilations by program text, what XLA has measured for them, and the records on captures."""
        for path in (self.compilations_directory, tuning_directory(self.directory), captures_directory(self.directory)):
            trim(path, 0)

    def trim(self) -> None:
        """Evict programs by their eviction scores if a limit is exceeded, until 90% of the limit is used."""
        if self.shared is not None and self.shared.unmeasured_bytes > self.shared.room:
            self._enforce_shared_limit()
        limit = max(self.max_bytes // 4, self.max_bytes - self.other_bytes())
        if self.nbytes <= limit:
            return
        # Reading the blobs deletes rows with damaged sizes, which would distort the total.
        self._read(lambda catalog, _: len(catalog.blobs()), 0)
        total, now = self.nbytes, time.time()
        leaving = []
        for info in sorted(self.infos(), key=lambda info: eviction_score(info, now)):
            if total <= limit * _TRIM_FRACTION:
                break
            if not info.pinned and self._allow_eviction(info.key, self.recipe):
                total -= info.disk_bytes
                leaving.append(info.key)
        self._remove_evicted(leaving)

    def _enforce_shared_limit(self) -> int:
        if self.shared is None or not self.max_bytes:
            return 0
        self._write(lambda catalog, _: catalog.truncate_log())
        return self.shared.enforce(
            lambda: [info for info in self.infos() if not info.pinned], self._evict, self._evictions
        )

    def _evict(self, keys: list[str]) -> None:
        self._remove_evicted([key for key in keys if self._allow_eviction(key, self.recipe)])

    def _remove_evicted(self, keys: list[str]) -> None:
        self.remove(keys)
        self._evictions.add(self.directory, len(keys))

    def collect(self) -> int:
        """Check the catalog for damage, evict programs over the limits, and delete unneeded files.

        Returns:
            The number of bytes freed, those in JAX's own cache and in other environments included.
        """
        self._read(lambda catalog, _: catalog.check(), None)
        before = self.nbytes
        self.trim()
        freed = self._write(lambda catalog, blobs: blobs.sweep(catalog.blobs())) or 0
        freed += max(0, before - self.nbytes)
        for path in (self.compilations_directory, tuning_directory(self.directory)):
            freed += trim(path, self.max_compilations_bytes)
        return freed + self._enforce_shared_limit()

    def compilations(self) -> tuple[int, int]:
        """Return the number of compilations by program text, and their bytes."""
        try:
            return self._deadlines.run(lambda: usage(self.compilations_directory), _READ_SECONDS)
        except OSError:
            return 0, 0

    def close(self, infos: Sequence[EntryInfo] = ()) -> None:
        """Write the counted hits and current information about programs, and close the files."""
        self.flush(_READ_SECONDS)
        if infos:
            self._write(lambda catalog, _: catalog.note(infos), _READ_SECONDS)

        def act() -> None:
            with self._opening:
                if self._opened is not None:
                    self._opened[0].close()
                    self._opened = None

        with contextlib.suppress(OSError, sqlite3.Error):
            self._deadlines.run(act, _READ_SECONDS)

    # ---- a disk that fails

    def _read(self, act: Act[Found], otherwise: Found, more_seconds: float = 0.0) -> Found:
        if not self.max_bytes:
            return otherwise
        try:
            return self._deadlines.run(lambda: self._do(act), _READ_SECONDS + more_seconds)
        except _FAILURES as error:
            self._fail(error)
            return otherwise

    def _write(self, act: Act[Found], seconds: float = _WRITE_SECONDS) -> Found | None:
        if not self.max_bytes:
            return None
        if self._failed_at is not None and time.monotonic() - self._failed_at < _RETRY_SECONDS:
            return None
        try:
            done = self._deadlines.run(lambda: self._do(act, to_write=True), seconds)
        except _FAILURES as error:
            self._fail(error)
            return None
        if self._failed_at is not None:
            log.info("disk cache: works again")
            self._failed_at = None
        return done

    def _do(self, act: Act[Found], to_write: bool = False) -> Found:
        try:
            return act(*self._open(to_write))
        except _FAILURES as error:
            if is_damage(error) and self._quarantine_catalog(error):
                raise _Restarted(str(error)) from error
            raise

    def _open(self, to_write: bool) -> tuple[Catalog, Blobs]:
        with self._opening:
            path = self.directory / CATALOG
            # Users may delete the cache directory at any time.
            is_gone = not os.path.lexists(path)
            if self._opened is not None and is_gone:
                self._opened[0].close()
                self._opened = None
            if self._opened is None or (to_write and not self._opened[0].writes):
                if is_gone:
                    self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self.directory.mkdir(mode=0o700, exist_ok=True)
                    self.directory.chmod(0o700)  # jax may have created it
                try:
                    catalog = Catalog(path)
                except sqlite3.OperationalError:
                    if to_write:
                        raise
                    catalog = Catalog(path, writes=False)
                # Other threads may still read from a catalog that could only be read: it is closed after them.
                self._opened = catalog, Blobs(self.directory / BLOBS, self._quarantine)
            return self._opened

    def _fail(self, error: Exception) -> None:
        with self._lock:
            is_new, self._failed_at = self._failed_at is None, time.monotonic()
            if isinstance(error, _Restarted):
                self._failed_at = None
                return
        if is_new:
            log.warning(
                "disk cache: cannot use %s (%s). Writing is tried again after %.0f s.",
                *(self.directory, error, _RETRY_SECONDS),
            )

    def _quarantine_catalog(self, error: Exception) -> bool:
        """Move a damaged catalog to quarantine; return whether it could be moved."""
        with self._opening:
            if self._opened is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._opened[0].close()
                self._opened = None
            for path in self.directory.glob(f"{CATALOG}*"):
                with contextlib.suppress(OSError):
                    self._quarantine.mkdir(mode=0o700, exist_ok=True)
                    path.replace(self._quarantine / f"{time.time_ns()}-{path.name}")
            path = self.directory / CATALOG
            if os.path.lexists(path):
                return False
        log.warning(
            "disk cache: the catalog %s is damaged (%s). It was moved to %s; the cache starts empty.",
            *(path, error, self._quarantine),
        )
        return True
