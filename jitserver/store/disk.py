"""The disk tier: programs that outlive the daemon, within a bound, for as long as the disk plays along."""

import contextlib
import dataclasses
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from jitclient.wire.messages import EntryInfo
from jitserver.store.blobs import Blobs
from jitserver.store.catalog import CATALOG, Catalog, Use, is_damage
from jitserver.store.entry import Stored, worth
from jitserver.store.files import Corrupt
from jitserver.store.folder import texts, trim

log = logging.getLogger(__name__)

_QUARANTINE = "quarantine"
"""The folder of what turned out to be damaged."""

_AFTER_TRIM = 0.9
_RETRY_SECONDS = 30.0

Found = TypeVar("Found")
Act = Callable[[Catalog, Blobs], Found]


class Store:
    """Programs by call key, at most `most_bytes` of them. Safe to use from threads, and beside other daemons.

    Where the disk fails, nothing is found and nothing is kept, with one warning, until it works again.
    """

    def __init__(self, folder: Path, most_bytes: int, take_over: Callable[[str], bool] = lambda key: True) -> None:
        """It takes about `most_bytes`, a quarter of them for JAX's own cache; with 0 it keeps nothing. Programs whose
        key `take_over` refuses leave only when they are removed.
        """
        self.texts = texts(folder)
        self._most_texts = most_bytes // 4
        self.most_bytes = most_bytes - self._most_texts
        self._take_over = take_over
        self._folder = folder
        self._quarantine = folder / _QUARANTINE
        self._lock = threading.Lock()
        self._opened: tuple[Catalog, Blobs] | None = None
        self._failed_at: float | None = None
        self._uses: dict[str, Use] = {}
        self.beside: Callable[[], int] = int
        """The bytes that others have on the disk, for which programs leave, down to a quarter of the bound."""

    # ---- reading

    def get(self, key: str) -> Stored | None:
        """Return the program of a key."""
        return self._read(lambda catalog, _: catalog.find(key), None)

    def blob(self, digest: str) -> memoryview | None:
        """The bytes of a digest; None where they are missing or damaged."""
        return self._read(lambda _, blobs: blobs.get(digest), None) if digest else None

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty."""
        return self._read(lambda catalog, _: catalog.infos(prefix), [])

    def of_base(self, base: str) -> list[EntryInfo]:
        """Return the programs of a base key, which differ in their manifests."""
        return self._read(lambda catalog, _: catalog.of_base(base), [])

    def named(self, name: str) -> list[Stored]:
        """Return the programs of a name, the ones used last first: some of them, if there are many."""
        return self._read(lambda catalog, _: catalog.named(name), [])

    @property
    def nbytes(self) -> int:
        """The bytes that the programs take."""
        return self._read(lambda catalog, _: catalog.total(), 0)

    # ---- writing

    def put(self, stored: Stored, executable: bytes = b"", capture: bytes = b"") -> Stored:
        """Adds a program, with its executable and its capture where there are any, and makes room for it."""

        def act(catalog: Catalog, blobs: Blobs) -> Stored:
            digests = [blobs.put(data) if data else "" for data in (executable, capture)]
            sizes = {digest: len(data) for digest, data in zip(digests, (executable, capture), strict=True) if data}
            info = stored.info
            info.disk_bytes = sum(sizes.values())
            kept = dataclasses.replace(stored, executable=digests[0], capture=digests[1])
            catalog.add(kept, sizes)
            return kept

        kept = self._write(act)
        self.trim()
        return kept or stored

    def used(self, use: Use) -> None:
        """Notes that a program was found; `flush` writes it down."""
        with self._lock:
            before = self._uses.get(use.key, Use(use.key, 0, 0.0, 0.0))
            self._uses[use.key] = Use(use.key, before.hits + use.hits, before.saved + use.saved, use.last_used)

    def flush(self) -> None:
        """Writes down what was found since the last time."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if uses:
            self._write(lambda catalog, _: catalog.use(uses.values()))

    def note(self, infos: Sequence[EntryInfo]) -> None:
        """Writes down what is known of programs by now."""
        if infos:
            self._write(lambda catalog, _: catalog.note(infos))

    def pin(self, keys: Iterable[str], pinned: bool) -> None:
        """Protect programs from eviction, or no longer."""
        self._write(lambda catalog, _: catalog.pin(keys, pinned))

    def remove(self, keys: Iterable[str]) -> None:
        """Forgets programs, and deletes what no other needs."""
        gone = list(keys)

        def act(catalog: Catalog, blobs: Blobs) -> None:
            for digest in catalog.remove(gone):
                blobs.remove(digest)

        if gone:
            self._write(act)

    def spoilt(self, stored: Stored) -> None:
        """An executable cannot be loaded: it is moved aside, and the program forgotten."""
        self._write(lambda _, blobs: blobs.discard(stored.executable))
        self.remove([stored.info.key])

    def trim(self) -> None:
        """Forgets what is worth least until the rest is within the bound with room to spare, if it is not."""
        most = max(self.most_bytes // 4, self.most_bytes - self.beside())
        if self.nbytes <= most:
            return
        self._read(lambda catalog, _: len(catalog.blobs()), 0)  # damaged sizes are removed
        total, now = self.nbytes, time.time()
        leaving = []
        for info in sorted(self.infos(), key=lambda info: worth(info, now)):
            if total <= most * _AFTER_TRIM:
                break
            if not info.pinned and self._take_over(info.key):
                total -= info.disk_bytes
                leaving.append(info.key)
        self.remove(leaving)
        log.info("%d programs left the disk, whose share is full", len(leaving))

    def collect(self) -> int:
        """Deletes what nobody needs, after a look for damage; returns the bytes that were freed."""
        self._read(lambda catalog, _: catalog.check(), None)
        before = self.nbytes
        self.trim()
        freed = self._write(lambda catalog, blobs: blobs.sweep(catalog.blobs())) or 0
        return freed + max(0, before - self.nbytes) + trim(self.texts, self._most_texts)

    def close(self) -> None:
        """Writes down what is left to write, and lets go of the files."""
        self.flush()
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._opened is not None:
                self._opened[0].close()
                self._opened = None

    # ---- a disk that fails

    def _read(self, act: Act[Found], otherwise: Found) -> Found:
        if not self.most_bytes:
            return otherwise
        try:
            return act(*self._open())
        except (OSError, sqlite3.Error, UnicodeDecodeError, Corrupt) as error:
            self._fail(error)
            return otherwise

    def _write(self, act: Act[Found]) -> Found | None:
        if not self.most_bytes:
            return None
        if self._failed_at is not None and time.monotonic() - self._failed_at < _RETRY_SECONDS:
            return None
        try:
            done = act(*self._open(to_write=True))
        except (OSError, sqlite3.Error, UnicodeDecodeError, Corrupt) as error:
            self._fail(error)
            return None
        if self._failed_at is not None:
            log.info("programs are kept on the disk again")
            self._failed_at = None
        return done

    def _open(self, to_write: bool = False) -> tuple[Catalog, Blobs]:
        with self._lock:
            path = self._folder / CATALOG
            is_gone = not path.exists()  # somebody has deleted the folder, as one may with a cache
            if self._opened is not None and (is_gone or (to_write and not self._opened[0].writes)):
                self._opened[0].close()
                self._opened = None
            if self._opened is None:
                if is_gone:
                    self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                    self._folder.chmod(0o700)  # jax may have made it
                try:
                    catalog = Catalog(path)
                except sqlite3.OperationalError:
                    if to_write:
                        raise
                    catalog = Catalog(path, writes=False)
                self._opened = catalog, Blobs(self._folder / "blobs", self._quarantine)
            return self._opened

    def _fail(self, error: Exception) -> None:
        broken = is_damage(error)
        with self._lock:
            first, self._failed_at = self._failed_at is None, time.monotonic()
            if broken:
                self._failed_at = None
                self._set_catalog_aside()
        if broken:
            log.warning("%s moved to %s, and begun anew: %s", self._folder / CATALOG, self._quarantine, error)
        elif first:
            log.warning("programs are not kept on the disk for now (%s: %s)", self._folder, error)

    def _set_catalog_aside(self) -> None:
        if self._opened is not None:
            with contextlib.suppress(sqlite3.Error):
                self._opened[0].close()
            self._opened = None
        for path in self._folder.glob(f"{CATALOG}*"):
            with contextlib.suppress(OSError):
                self._quarantine.mkdir(mode=0o700, exist_ok=True)
                path.replace(self._quarantine / f"{time.time_ns()}-{path.name}")
